"""How long a lesson takes: estimated from what a reader reads, runs, guesses and writes.

`reading` is everything but the exercise; `exercise` has the exercise's own text and the time to write
about as many lines as our solution has. A lesson's first cell says both, rounded to five.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from authoring.lab import NOTEBOOKS
from authoring.parts import LINK, part_of

WORDS = 1 / 180  # minutes for each word of prose
CODE = 1 / 12  # for a line that is read and run
GUESS, PICTURE = 0.75, 0.5
WRITTEN = 0.75  # for a line of our solution: a learner writes it and gets it wrong once
STEP = 5
GENERATED = re.compile(r"^\*[^*]+\*$", re.MULTILINE)  # these very minutes, and the routes


@dataclass(frozen=True)
class Minutes:
    """A lesson's minutes; `exercise` is 0 for a short lesson."""

    reading: int
    exercise: int = 0

    def __str__(self) -> str:
        exercise = f", and {self.exercise} for the exercise" if self.exercise else ""
        return f"About {self.reading} minutes{exercise}."


def minutes_of(cells: Iterable[Any], lesson: str) -> Minutes:
    """Estimate the minutes of the lesson with the number "NN"."""
    reading, exercise = 0.0, 0.0
    for cell in cells:
        if part_of(cell) in ("exercise", "stretch"):
            exercise += _minutes_of_cell(cell)
        else:
            reading += _minutes_of_cell(cell)
    if exercise:
        exercise += WRITTEN * _lines_to_write(lesson)
    return Minutes(_rounded(reading), _rounded(exercise))


def _minutes_of_cell(cell: Any) -> float:
    if cell.cell_type == "markdown":
        text = LINK.sub(r"\1", GENERATED.sub("", cell.source))
        return WORDS * len(text.split())
    pictures = sum("image/png" in output.get("data", {}) for output in cell.outputs)
    lines = sum(bool(line.strip()) for line in cell.source.splitlines())
    return CODE * lines + GUESS * str(cell.source).count("predict(") + PICTURE * pictures


def _lines_to_write(lesson: str) -> int:
    """Count the lines of our solution, without comments."""
    path = NOTEBOOKS / "solutions" / f"lesson_{lesson}.py"
    return sum(
        len(ast.unparse(part).splitlines())
        for part in ast.parse(path.read_text("utf-8")).body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )


def _rounded(minutes: float) -> int:
    return max(STEP, round(minutes / STEP) * STEP) if minutes else 0
