"""Every path, symbol and link that docs, comments, docstrings and lessons name exists."""

import ast
import importlib
import io
import json
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("engine", "server", "visualizer")
NOT_OURS = (
    # Our docs are one flat folder; deeper pages are vLLM's and SGLang's.
    re.compile(r"docs/[\w-]+/"),
    re.compile(r"visualizer/frontend/node_modules|build/"),  # installed or made, not committed
    re.compile(r".*NN"),  # a template for a lesson's number
)
SUFFIX = r"\.(?:py|md|js|mjs|json|jsonl(?:\.gz)?|ipynb|toml|txt|css|html|png|svg|yml|cff)"
PATH = re.compile(rf"(?<![\w/.<{{:-])(?:[\w-]+/)+(?:[\w.-]+{SUFFIX}\b|(?=[\s`'\"),;:]|$))")
DOTTED = re.compile(rf"(?<![\w./-])(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+(?!/)")
LINK = re.compile(
    r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\""
)
TEST = re.compile(r"(?<![\w/.])test_\w{20,}(?!\.py)\b")
JS_COMMENT = re.compile(r"/\*.*?\*/|(?<![:\"'`])//[^\n]*", re.DOTALL)
BACKTICKS = re.compile(r"`+([^`]+)`+")


class Text(NamedTuple):
    """A piece of prose: where it begins, and where relative paths in it start from."""

    file: Path
    line: int
    text: str


def sources() -> list[Path]:
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    files += [ROOT / "engine/README.md", ROOT / "engine/bundled/README.md"]
    files += (ROOT / "notebooks").glob("*.ipynb")
    for package in PACKAGES:
        files += (f for f in (ROOT / package).rglob("*.py") if "node_modules" not in f.parts)
    for folder in ("visualizer/frontend/src", "visualizer/frontend/test", "server/pages"):
        files += (ROOT / folder).rglob("*.[jt]s")
    return sorted(files)


def texts(file: Path) -> Iterator[Text]:
    """The prose of a file: markdown, docstrings and comments."""
    source = file.read_text("utf-8")
    if file.suffix == ".md":
        yield Text(file, 1, source)
    elif file.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(source)["cells"], 1):
            if cell["cell_type"] == "markdown":
                yield Text(file, number, "".join(cell["source"]))
    elif file.suffix in (".js", ".ts"):
        for comment in JS_COMMENT.finditer(source):
            yield Text(file, 1 + source.count("\n", 0, comment.start()), comment[0])
    else:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                doc = ast.get_docstring(node, clean=False)
                if doc:
                    yield Text(file, node.body[0].lineno, doc)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield Text(file, token.start[0], token.string)


def dead_references(text: Text) -> Iterator[str]:
    """Each name in a text that nothing answers to, as "file:line: name"."""
    notebook = text.file.suffix == ".ipynb"

    def dead(at: int, name: str) -> str:
        line = text.line if notebook else text.line + text.text.count("\n", 0, at)
        where = f"{text.file.relative_to(ROOT)}:{'cell ' * notebook}{line}"
        return f"{where}: {name}"

    for found in LINK.finditer(text.text):
        target = found[1] or found[2] or found[3]
        if not link_exists(text.file, target):
            yield dead(found.start(), target)
    for quoted in BACKTICKS.finditer(text.text):
        for found in PATH.finditer(quoted[1]):
            if not path_exists(text.file, found[0]):
                yield dead(quoted.start(), found[0])
    for found in PATH.finditer(text.text):
        if found[0].split("/")[0] in PACKAGES and not path_exists(text.file, found[0]):
            yield dead(found.start(), found[0])
    for found in TEST.finditer(text.text):
        if found[0] not in names_of_tests():
            yield dead(found.start(), found[0])
    for found in DOTTED.finditer(text.text):
        if not (symbol_exists(found[0]) or is_variable(text, found)):
            yield dead(found.start(), found[0])


def path_exists(file: Path, path: str) -> bool:
    """Whether a path is there, from the root, from the file's folder or from its package.

    A first part that is no folder of these is not a path of the project ("and/or", "Qwen/Qwen3").
    """
    bases = [ROOT, *(base for base in file.parents if base.is_relative_to(ROOT))]
    first = path.split("/", maxsplit=1)[0]
    known = [base for base in bases if (base / first).is_dir()]
    if not known or any(pattern.match(path) for pattern in NOT_OURS):
        return True
    return any((base / path).exists() for base in known)


@cache
def names_of_tests() -> set[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return {
        name for file in files for name in re.findall(r"def (test_\w+)", file.read_text("utf-8"))
    }


def link_exists(file: Path, target: str) -> bool:
    """Whether a markdown link leads to a file, and its anchor to a heading there."""
    if re.match(r"[a-z]+:", target):
        return True
    path, _, anchor = target.partition("#")
    found = file.parent / path if path else file
    if not found.exists():
        return False
    return not anchor or found.suffix != ".md" or anchor in anchors(found)


@cache
def anchors(file: Path) -> set[str]:
    """The anchors that a code host gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def symbol_exists(name: str) -> bool:
    """Whether a dotted name is a module, or leads from one to an attribute."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:length])
        if (module / "__init__.py").exists() or module.with_suffix(".py").exists():
            return has_attributes(".".join(parts[:length]), parts[length:])
    return False


def has_attributes(module: str, names: list[str]) -> bool:
    if not names:
        return True
    found: object = importlib.import_module(module)
    for name in names:
        fields = getattr(found, "__annotations__", {})
        if not hasattr(found, name) and name not in fields:
            return False
        found = getattr(found, name, None)
    return True


def is_variable(text: Text, found: re.Match[str]) -> bool:
    """`engine.step()`: the instance that examples call `engine`, or `server`."""
    files = {"engine": "engine/core/engine.py", "server": "server/process.py"}
    first, second, *_ = found[0].split(".")
    if first not in files:
        return False
    source = (ROOT / files[first]).read_text("utf-8")
    return re.search(rf"(?:self\.|def |^    ){second}\b", source, re.MULTILINE) is not None


def test_every_reference_leads_somewhere():
    prose = [text for file in sources() for text in texts(file)]
    dead = sorted({one for text in prose for one in dead_references(text)})
    assert not dead, "these names lead nowhere:\n" + "\n".join(dead)


def test_the_lessons_answer_the_ten_questions_in_these_words() -> None:
    page = (ROOT / "docs" / "questions.md").read_text("utf-8")
    answers = re.findall(r"\.\./(notebooks/\S+\.ipynb)\):\n((?:\n(?:> .*\n)+)+)", page)
    assert len(answers) == 10
    for lesson, quoted in answers:
        said = " ".join(" ".join(text for *_, text in texts(ROOT / lesson)).split())
        for quote in quoted.strip().split("\n\n"):
            for part in " ".join(line[2:] for line in quote.splitlines()).split(" [...] "):
                assert part.rstrip(".") in said, (lesson, part)
