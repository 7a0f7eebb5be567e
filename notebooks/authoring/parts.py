"""What a lesson consists of: its parts, each named by a cell's tag, and its predictions.

`notebooks/authoring/rules.py` checks the course's rules; `docs/add_a_lesson.md` explains them.

A prediction is three parts: `predict` asks, `run` computes and reveals, `answer` explains, folded.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from authoring.lab import NOTEBOOKS

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
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

Cell = Any  # nbformat's cells are dictionaries with attributes

LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")


def lessons() -> list[Path]:
    """Return all lessons in order."""
    return sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


# Notebooks without a lesson's parts: tools, whose outputs are stored like those of lessons.
WORKBENCHES = [NOTEBOOKS / "scheduler_bench.ipynb"]


def part_of(cell: Cell) -> str:
    """Return the part that a cell belongs to, "" without a tag."""
    return next((tag for tag in cell.metadata.get("tags", []) if tag in ORDER), "")


def tags_of(cell: Any) -> list[str]:
    """Return a cell's tags."""
    tags: list[str] = cell.metadata.get("tags", [])
    return tags


def files_in(text: str) -> list[str]:
    """Return the links to files of the project's source."""
    targets = [target for _, target in LINK.findall(text)]
    return [one for one in targets if re.match(r"\.\./(engine|server|visualizer)/", one)]


def file_of(notebook: Any) -> str:
    """Return the file that a lesson links to at its end."""
    return next(
        files[0]
        for cell in notebook.cells
        if part_of(cell) == "next" and (files := files_in(cell.source))
    )


@dataclass(frozen=True)
class Prediction:
    """A question: its key, and the cells that ask it and that answer it."""

    key: str
    asked: int
    answered: int


def predictions(cells: list[Any]) -> list[Prediction]:
    """Return the questions in order. Raises ValueError if they and the answers do not pair up."""
    asked = [
        (index, key)
        for index, cell in enumerate(cells)
        if cell.cell_type == "code"
        for key in _keys(cell.source)
    ]
    answers = [index for index, cell in enumerate(cells) if "answer" in tags_of(cell)]
    if len(asked) != len(answers):
        raise ValueError(f"{len(asked)} predictions have {len(answers)} answer cells")
    pairs = [
        Prediction(key, index, answer) for (index, key), answer in zip(asked, answers, strict=True)
    ]
    for one in pairs:
        if one.answered < one.asked:
            raise ValueError(f"{one.key} is answered in cell {one.answered}, before it is asked")
    return pairs


def hidden(cells: list[Any]) -> set[int]:
    """Return the cells whose outputs are not stored: from each question to its answer."""
    return {cell for one in predictions(cells) for cell in range(one.asked, one.answered + 1)}


def tree_of(source: str) -> ast.AST:
    """Parse a cell without its magics."""
    plain = re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE)
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree: ast.AST = compile(plain, "cell", "exec", flags)
    return tree


def calls(source: str, *names: str) -> Iterator[ast.Call]:
    """Yield the calls of functions and methods with these names."""
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Call):
            function = node.func
            name = (
                function.attr
                if isinstance(function, ast.Attribute)
                else getattr(function, "id", "")
            )
            if name in names:
                yield node


def _keys(source: str) -> list[str]:
    return [ast.literal_eval(call.args[0]) for call in calls(source, "predict")]
