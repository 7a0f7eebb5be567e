"""What a learner's file uses that no part needs: names, our own modules, and what it changes in them.

It is read from the code before that runs, as in `underglass grade`. It is a hint for a teacher and no
proof, because code can hide from it.
"""

import ast
from collections.abc import Iterator

from grading.needed import Program, Statement, unusual
from project.learner import MineError, Source

OWN = {"benchmarks", "checks", "engine", "grading", "project", "server", "solutions", "visualizer"}
# What the lessons' own solutions import.
NEEDED = {
    "checks.afternoon MACHINE",
    "checks.lesson_03 Shape",
    "engine what_if",
    "engine.core.cache.radix_tree RadixNode",
    "engine.core.log EventLog",
    "engine.core.log.vocabulary Blocked",
    "engine.core.log.vocabulary RunStarted",
    "engine.core.log.vocabulary StepScheduled",
    "engine.core.speculation.verification Pick",
    "visualizer read",
}
CHANGES = {"setattr", "delattr", "__dict__", "__setattr__", "__class__"}


def uses(source: Source) -> list[str]:
    """Return the names, the imports and the changes. Raises MineError for a file that is not Python."""
    try:
        tree = ast.parse(source.code)
        code = compile(tree, source.path, "exec")
    except (SyntaxError, ValueError) as error:
        raise MineError(f"mine.py is not Python: {error}") from None
    found = {*unusual(Program([Statement(code, frozenset(), frozenset())], code, []))}
    imported = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {(one.asname or one.name).partition(".")[0] for one in node.names}
            found |= {one for one in _imports(node) if one.split()[0].split(".")[0] in OWN} - NEEDED
        elif isinstance(node, ast.Name | ast.Attribute):
            found |= CHANGES & {node.id if isinstance(node, ast.Name) else node.attr}
    return sorted(found | set(_changed(tree, imported)))


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    for one in node.names:
        yield one.name if isinstance(node, ast.Import) else f"{node.module} {one.name}"


def _changed(tree: ast.AST, imported: set[str]) -> Iterator[str]:
    """Yield the assignments to what belongs to something imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            root: ast.expr = node
            while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name) and root.id in imported:
                yield f"{ast.unparse(node)} ="
