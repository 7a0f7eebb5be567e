"""The decision functions that the board names exist."""

import ast
import re

import pytest

from visualizer.html import MODULE
from visualizer.widgets.log_model import PROJECT

SOURCES = (MODULE.parents[1] / "frontend" / "src" / "board" / "sources.ts").read_text("utf-8")
FILES = dict(re.findall(r'const (\w+) = "(engine/[\w/]+\.py)";', SOURCES))
NAMED = sorted(set(re.findall(r'\[(\w+), "(\w+)"\]', SOURCES)))


def test_the_table_is_read():
    assert len(FILES) == 6
    assert len(NAMED) > 10


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_function_that_decides_is_in_its_file(file, name):
    tree = ast.parse((PROJECT / FILES[file]).read_text("utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert name in functions
