"""Check the course's rules: the parts of a lesson in order, and the rules for each cell.

A cell's tag names its part. `problems(path)` returns messages for the author;
`tests/lessons/test_parts.py` checks every lesson, and

    PYTHONPATH=notebooks .venv/bin/python -m authoring.parts 04

checks one. `docs/add_a_lesson.md` explains the rules.
"""

import ast
import base64
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat

from authoring.lab import NOTEBOOKS, REPOSITORY, WIDGET
from authoring.numbers import untraced
from authoring.spoilers import spoilers

ORDER = (
    "hook",
    "question",
    "naive",
    "predict",
    "run",
    "answer",
    "look",
    "explain",
    "change",
    "exercise",
    "stretch",
    "differs",
    "recap",
    "next",
)
# Parts that may repeat.
AGAIN = {"naive", "predict", "run", "answer", "look", "explain", "change"}
ENDING = ("exercise", "stretch", "differs", "recap", "next")
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
MOST_WORDS, MOST_LINES, MOST_NEW_WORDS = 90, 15, 4
RECAP_QUESTIONS = 3
MOST_PICTURE_BYTES, MOST_BYTES = 300_000, 1_500_000
FORBIDDEN = ("simply", "just", "obviously", "as you can see", "of course", "trivial")

Cell = Any  # nbformat's cells are dictionaries with attributes

_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
_FOLD = re.compile(r"<details>\s*<summary>(.+?)</summary>(.+?)</details>", re.DOTALL)
_TAG = re.compile(r"</?\w+>")
_NEW_WORD = re.compile(r"\[\*\*([^*]+)\*\*\]\(\.\./docs/glossary\.md\)")
_GLOSSARY_WORD = re.compile(r"\*\*([^*]+)\*\*")


def lessons() -> list[Path]:
    """Return all lessons in order."""
    return sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def problems(path: Path) -> list[str]:
    """Return messages about broken rules; none if the lesson is right."""
    notebook = nbformat.read(path, as_version=4)
    found = [*_of_the_file(notebook, path), *_of_the_order(notebook.cells)]
    for index, cell in enumerate(notebook.cells):
        kind = _of_prose if cell.cell_type == "markdown" else _of_code
        found += [f"cell {index} ({part_of(cell)}): {words}" for words in kind(cell)]
    found += _of_the_words(notebook.cells)
    found += [
        f"cell {index} ({part_of(notebook.cells[index])}): {words}"
        for index, words in spoilers(notebook.cells)
    ]
    if not any("hint=1" in cell.source for cell in notebook.cells if part_of(cell) == "exercise"):
        found.append("no exercise cell says how to get the first hint (`hint=1`)")
    found += [
        f"cell {index} ({part_of(notebook.cells[index])}): {number} is in no output or code above it, "
        "and not in the next cell; compute it, or tag the cell `cited` and name the source"
        for index, number in untraced(notebook.cells)
    ]
    return found


def part_of(cell: Cell) -> str:
    """Return the part that a cell belongs to, "" without a tag."""
    return next((tag for tag in cell.metadata.get("tags", []) if tag in ORDER), "")


def _of_the_file(notebook: Any, path: Path) -> Iterator[str]:
    if notebook.metadata != METADATA:
        yield f"the notebook's metadata are not {METADATA}; `make notebooks` normalises them"
    if path.stat().st_size > MOST_BYTES:
        yield f"the file has {path.stat().st_size} bytes, at most {MOST_BYTES} are allowed"
    first = notebook.cells[0].source
    if not re.match(rf"# {path.name[:2]} \S", first):
        yield f'the first cell does not begin with "# {path.name[:2]} " and the lesson\'s name'
    if not re.search(r"^\*About \d\d minutes\.\*$", first, re.MULTILINE):
        yield 'the first cell has no line "*About 25 minutes.*"'
    if not any("image/png" in output.get("data", {}) for output in _outputs(notebook.cells)):
        yield "no stored output has a picture: run `make notebooks`"


def _outputs(cells: list[Cell]) -> Iterator[Any]:
    for cell in cells:
        yield from cell.get("outputs", [])


def _of_the_order(cells: list[Cell]) -> Iterator[str]:
    parts = [part_of(cell) for cell in cells]
    for index, cell in enumerate(cells):
        extra = set(cell.metadata) - {"tags"}
        tags = [tag for tag in cell.metadata.get("tags", []) if tag in ORDER]
        if len(tags) != 1:
            yield f"cell {index} has the parts {tags}: give it exactly one of {', '.join(ORDER)}"
        if extra:
            yield f"cell {index} has the metadata {sorted(extra)}: only tags are kept"
    if missing := [part for part in ORDER if part not in parts]:
        yield f"the lesson has no {' and no '.join(missing)}"
        return
    first = [parts.index(part) for part in ORDER]
    if first != sorted(first):
        yield f"the parts first appear in another order than {', '.join(ORDER)}: {parts}"
    for (index, before), after in zip(enumerate(parts), parts[1:], strict=False):
        back = after in ORDER and before in ORDER and ORDER.index(after) < ORDER.index(before)
        if back and after not in AGAIN:
            yield f"cell {index + 1} ({after}) comes after a {before}"
        if back and before in ENDING:
            yield f"cell {index + 1} ({after}) comes after the {before}: a lesson ends with those"
    hooks = [cell for cell in cells if part_of(cell) == "hook"]
    if not any("cited" in cell.metadata.tags and "https://" in cell.source for cell in hooks):
        yield "no hook cell, tagged `cited`, says with a number and a link why the question matters"
    if not any("image/png" in one.get("data", {}) for one in _outputs(hooks)):
        yield "no hook cell shows a stored picture: a reader who runs nothing learns the point from it"


def _of_prose(cell: Cell) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL)
    plain = _TAG.sub(" ", _LINK.sub(r"\1", re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)))
    words = len(re.findall(r"\S*\w\S*", plain))
    if words > MOST_WORDS:
        yield f"{words} words, at most {MOST_WORDS}"
    for word in FORBIDDEN:
        if re.search(rf"\b{word}\b", text, re.IGNORECASE):
            yield f'it says "{word}"'
    for _, target in _LINK.findall(text):
        file = NOTEBOOKS / target.split("#")[0]
        if not re.match(r"https?://|#", target) and not file.is_file():
            yield f"the link {target} leads to no file"
    if part_of(cell) == "question" and not re.search(r"\*\*[^*]+\?\*\*", text):
        yield "the question is not bold, or is none"
    folds = _FOLD.findall(text)
    if part_of(cell) == "answer" and (len(folds) != 1 or not text.startswith("<details>")):
        yield "it is not one <details> with a <summary>: an answer stays folded until it is opened"
    if part_of(cell) == "recap" and len(folds) != RECAP_QUESTIONS:
        yield f"it has {len(folds)} questions that unfold their answers, not {RECAP_QUESTIONS}"
    if part_of(cell) == "next" and not _files(text):
        yield "it names no file of engine/, server/ or visualizer/ to read"


def _files(text: str) -> list[str]:
    targets = [target for _, target in _LINK.findall(text)]
    return [one for one in targets if re.match(r"\.\./(engine|server|visualizer)/", one)]


def _of_code(cell: Cell) -> Iterator[str]:
    lines = [line for line in cell.source.splitlines() if line.strip()]
    if len(lines) > MOST_LINES:
        yield f"{len(lines)} lines of code, at most {MOST_LINES}"
    if not cell.execution_count:
        yield "it has not been run: `make notebooks`"
    if not _is_on_a_virtual_clock(cell):
        for line in _asserted_times(cell.source):
            yield f"it asserts a time in `{line}`: only a virtual clock's may be (tag virtual-clock)"
    for output in cell.outputs:
        data = output.get("data", {})
        picture = data.get("image/png")
        if output.output_type == "error":
            yield "its stored output is an error"
        if WIDGET in data:
            yield "a widget's reference is stored, which is dead in a new session: `make notebooks`"
        if picture and len(base64.b64decode(picture)) > MOST_PICTURE_BYTES:
            yield f"its picture has more than {MOST_PICTURE_BYTES} bytes"


def _is_on_a_virtual_clock(cell: Cell) -> bool:
    return "virtual-clock" in cell.metadata.get("tags", [])


def _asserted_times(source: str) -> Iterator[str]:
    """Yield assertions about times: names, columns or keys in ms or seconds."""
    plain = re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE)
    for node in ast.walk(compile(plain, "cell", "exec", _AST_WITH_AWAIT)):
        if not isinstance(node, ast.Assert):
            continue
        text = ast.unparse(node.test)
        if re.search(r"_ms\b|perf_counter|monotonic|\bseconds\b|time\.time", text):
            yield ast.unparse(node)


_AST_WITH_AWAIT = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def _of_the_words(cells: list[Cell]) -> Iterator[str]:
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    new = [word for text in prose for word in _NEW_WORD.findall(text)]
    glossary = _GLOSSARY_WORD.findall((REPOSITORY / "docs" / "glossary.md").read_text("utf-8"))
    known = {word.lower() for word in glossary}
    if not 1 <= len(new) <= MOST_NEW_WORDS:
        yield f"new words are [**word**](../docs/glossary.md), one to three a lesson; here: {new}"
    for word in new:
        if word.lower() not in known and word.lower().rstrip("s") not in known:
            yield f'"{word}" is not in docs/glossary.md'
    for before, after in pairwise(sorted(word.lower() for word in new)):
        if before == after:
            yield f'"{before}" is introduced twice'


def file_of(notebook: Any) -> str:
    """Return the file that a lesson links to at its end."""
    return next(
        files[0]
        for cell in notebook.cells
        if part_of(cell) == "next" and (files := _files(cell.source))
    )


if __name__ == "__main__":
    wanted = tuple(sys.argv[1:]) or ("",)
    found = {path.name: problems(path) for path in lessons() if path.name.startswith(wanted)}
    for name, words in found.items():
        print(f"{name}: {'as it should be' if not words else ''}")
        print("".join(f"  - {line}\n" for line in words), end="")
    raise SystemExit(any(found.values()))
