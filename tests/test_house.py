"""The house: `engine/core` stands alone and small, and a short request runs through few of its files.

CONTRIBUTING.md has the picture. A change that adds to the core removes something else from it, so these
limits only fall.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
CORE = REPOSITORY / "engine" / "core"
FILES = sorted(CORE.rglob("*.py"))
LIBRARIES = {"msgspec"}
OF_COMPUTE = {"torch", "numpy"}
OPTIONAL = {"tqdm"}  # a progress bar, if it is there

# Prints which modules of the project a Python has loaded after importing the core.
LOADED = """
import json, sys
import engine.core.engine
rooms = ("engine", "visualizer", "server", "underglass")
print(json.dumps([name for name in sys.modules if name.partition(".")[0] in rooms]))
"""
# Prints what of the project an engine's first request runs through: [file, function, line] of each
# function, comprehensions, lambdas and products of matrices included.
PATH = """
import json, sys
from pathlib import Path
import engine
from engine import Engine, SamplingParams

root, called = str(Path(engine.__file__).parents[1]), set()
loaded = Engine.load("bundled")

def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and ".venv" not in code.co_filename:
        name, line = getattr(code, "co_qualname", code.co_name), code.co_firstlineno
        called.add((code.co_filename.removeprefix(root), name, line))

params = SamplingParams(max_tokens=32, temperature=float(sys.argv[1]))
sys.setprofile(note)
if sys.argv[2] == "submit":
    loaded.submit("Once upon a time", params)
    while loaded.has_work():
        loaded.step()
else:
    loaded.complete(["Once upon a time"], params, progress=False)
sys.setprofile(None)
print(json.dumps(sorted(called)))
"""


def printed(program: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-P", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    return json.loads(done.stdout)


def imported(file: Path) -> set[str]:
    """Return the names of all modules that a file imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def code_lines(file: Path) -> int:
    """Count the lines of code: no docstrings, comments or blank lines."""
    text = file.read_text("utf-8")
    blank = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENDMARKER,
    }  # fmt: skip
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in blank:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            docstring = node.body[0]
            lines -= {*range(docstring.lineno, (docstring.end_lineno or 0) + 1)}
    return len(lines)


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(CORE)) for file in FILES])
def test_the_core_imports_nothing_else_of_the_project(file: Path) -> None:
    allowed = LIBRARIES | OPTIONAL | (OF_COMPUTE if file.parent.name == "compute" else set())
    for name in imported(file):
        top = name.partition(".")[0]
        is_own = name == "engine.core" or name.startswith("engine.core.")
        assert is_own or top in allowed or top in sys.stdlib_module_names, name


def test_the_core_is_small() -> None:
    assert len(FILES) <= 60
    assert sum(map(code_lines, FILES)) <= 6500


def test_importing_the_core_loads_nothing_else() -> None:
    loaded = printed(LOADED)
    assert [name for name in loaded if not name.startswith("engine")] == []
    assert [name for name in loaded if not re.match(r"engine(\.core\b|$)", name)] == []
    assert len(loaded) <= 45


@pytest.mark.parametrize("way", ["submit", "complete"])
@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_a_short_request_runs_through_few_files(temperature: str, way: str) -> None:
    called = [tuple(one) for one in printed(PATH, temperature, way)]
    assert [file for file, *_ in called if "extensions" in file] == []  # what is off adds nothing
    assert len({file for file, *_ in called}) <= 24
    assert len(called) <= 100


def test_the_reading_order_states_true_sizes() -> None:
    text = (REPOSITORY / "engine" / "README.md").read_text("utf-8")
    stated = dict(re.findall(r"^\| \[`(core/[\w/]+\.py)`\]\(\1\) \| (\d+) \|", text, re.MULTILINE))
    files = {
        f"core/{file.relative_to(CORE).as_posix()}" for file in FILES if file.stat().st_size > 99
    }
    assert stated.keys() == files
    for name, lines in stated.items():
        real = len((REPOSITORY / "engine" / name).read_text("utf-8").splitlines())
        assert abs(real - int(lines)) <= max(5, real // 10), f"{name} has {real} lines"
