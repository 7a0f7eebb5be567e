"""The statements of a notebook that an exercise needs: its part's definition, and what that uses.

A grade must not depend on a lesson's pictures, runs and servers. But learners split their code over
cells, add helpers and import modules. So the cells do not all run. The last call of the lesson's check
names the part. A statement above it is needed if it binds or changes a name that the part, or another
needed statement, uses. The compiler says which names these are.
"""

import ast
import dis
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

_LOADS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_CLASSDEREF"}
_BINDS = {"STORE_NAME", "STORE_GLOBAL"}
_NAMES = {*_LOADS, "IMPORT_NAME", "IMPORT_FROM", "LOAD_ATTR", "LOAD_METHOD"}
# Modules, functions and attributes that no exercise needs, and that an attack on the grader does.
# Underscores do not count: `_os` and `__builtins__` are among them.
_UNUSUAL = frozenset(
    "Verdict builtins ctypes gc grading guard importlib inspect judge judging linecache mmap "
    "multiprocessing os pathlib pickle posix resource shutil signal socket subprocess sys threading "
    "tracemalloc compile eval exec globals import locals open f_back f_builtins f_globals f_locals "
    "tb_frame get_objects get_referrers getframe modules settrace setprofile subclasses".split()
)
_MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """A code cell of a notebook, counted from 1 among the code cells."""

    number: int
    source: str

    @property
    def name(self) -> str:
        """The file name in tracebacks."""
        return f"cell {self.number}"

    @property
    def plain(self) -> str:
        """The source without IPython's magics, line by line."""
        return _MAGIC.sub(r"\1pass", self.source)


@dataclass(frozen=True)
class Statement:
    """A compiled statement at the top of a cell."""

    code: CodeType
    binds: frozenset[str]
    uses: frozenset[str]


@dataclass(frozen=True)
class Program:
    """The statements to run, in order, and the expression of the parts, a tuple."""

    statements: list[Statement]
    parts: CodeType
    broken: list[str]  # cells that are no Python but name a part, with the error's place


def code_cells(path: Path) -> list[Cell]:
    """Return a notebook's code cells. Raises ValueError, KeyError or TypeError for another file."""
    sources = [
        "".join(cell["source"])
        for cell in json.loads(path.read_bytes())["cells"]
        if cell["cell_type"] == "code"
    ]
    return [Cell(number, source) for number, source in enumerate(sources, 1)]


def program(cells: list[Cell], check: str, parts: list[str], others: list[list[str]]) -> Program:
    """Return what the parts of an exercise need.

    The lesson calls `check` with `parts`, and perhaps with other parts for its other exercises. A
    learner's parts may have other names. Without a call of the check, they have the lesson's.
    """
    nodes: list[tuple[Cell, ast.stmt]] = []
    broken = []
    for cell in cells:
        try:
            nodes += [(cell, node) for node in statements_of(cell)]
        except (SyntaxError, ValueError) as error:
            if any(re.search(rf"\b{part}\b", cell.source) for part in parts):
                line = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
                broken.append(
                    f"Code {cell.name} is not Python{line}: {getattr(error, 'msg', error)}"
                )
    calls = [
        (index, call.args)
        for index, (_, node) in enumerate(nodes)
        for name, call in calls_of_checks(node)
        if name == check and names_of(call) not in others
    ]
    wanted: list[ast.expr] = [ast.Name(part, ast.Load()) for part in parts]
    end, asked = calls[-1] if calls else (len(nodes), wanted)
    modules = {name for _, node in nodes for name in _modules(node)}
    statements = [_compiled(cell, node, modules) for cell, node in nodes[:end]]
    expression = ast.Expression(ast.Tuple(asked, ast.Load()))
    code = compile(ast.fix_missing_locations(expression), "the check's cell", "eval")
    return Program(_closure(statements, _loaded(code)), code, broken)


def unusual(needed: Program) -> list[str]:
    """Return the names in the code that no exercise needs. A hint for a teacher, not a proof."""
    found = frozenset().union(*(_named(one.code) for one in needed.statements))
    return sorted(found & _UNUSUAL)


def _named(code: CodeType) -> frozenset[str]:
    instructions = [one for one in dis.get_instructions(code) if one.opname in _NAMES]
    names = {word.strip("_") for one in instructions for word in str(one.argval).split(".")}
    return frozenset(names.union(*map(_named, _functions(code))))


def _functions(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def statements_of(cell: Cell) -> list[ast.stmt]:
    """Return a cell's statements. Raises SyntaxError or ValueError if it is not Python."""
    tree = ast.parse(cell.plain, cell.name)
    compile(tree, cell.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return tree.body


def calls_of_checks(node: ast.stmt) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls `check.lesson_04(admit)` in a statement, each with "lesson_04"."""
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.args and call.func.attr.startswith("lesson_"):
            yield call.func.attr, call


def names_of(call: ast.Call) -> list[str]:
    """Return a call's positional arguments, as they are written."""
    return [ast.unparse(one) for one in call.args]


def _modules(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (one.asname or one.name.partition(".")[0] for one in node.names)


def _compiled(cell: Cell, node: ast.stmt, modules: set[str]) -> Statement:
    module = ast.Module([node], type_ignores=[])
    code = compile(module, cell.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    binds = {one.argval for one in dis.get_instructions(code) if one.opname in _BINDS}
    binds |= set(_changed(node)) - modules
    binds |= {"*"} & set(_modules(node))  # it may bind any name
    return Statement(code, frozenset(binds), _loaded(code))


def _changed(node: ast.stmt) -> Iterator[str]:
    """Yield the names in `name.x = ...`, `name[x] = ...` and `name.method(...)`."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        targets = [node.value.func]
    for target in targets:
        if isinstance(target, ast.Attribute | ast.Subscript) and isinstance(target.value, ast.Name):
            yield target.value.id


def _loaded(code: CodeType) -> frozenset[str]:
    """Return the global names that the code and the functions in it use."""
    names = {one.argval for one in dis.get_instructions(code) if one.opname in _LOADS}
    return frozenset(names.union(*map(_loaded, _functions(code))))


def _closure(statements: list[Statement], names: frozenset[str]) -> list[Statement]:
    needed: set[int] = set()
    while True:
        found = {
            index for index, one in enumerate(statements) if one.binds & names or "*" in one.binds
        }
        if found == needed:
            return [statements[index] for index in sorted(needed)]
        needed = found
        names = names.union(*(statements[index].uses for index in found))
