"""Make the contents notebook from the lessons: `make contents`."""

import re
from dataclasses import dataclass
from typing import Any

import nbformat

from authoring.lab import NOTEBOOKS
from authoring.parts import METADATA, file_of, lessons, part_of

CONTENTS = NOTEBOOKS / "contents.ipynb"
_HEAD = """\
# Underglass: the lessons

A course on how a language model is served: what the machine remembers, which request gets its time
and its memory, and why. Each lesson asks one question, lets you predict, and shows what happened. You
need no GPU and no account. Every lesson stands alone, and they build on one another in this order.

Run a cell with Shift+Enter. Click on a picture; then `.` and `,` step, and a click on anything tells
more about it. Change what you like and run it again: a line with `assert` checks a number in the
text, so delete it first. `make lab` and `underglass lab` open copies of the lessons, where your work
stays."""
_TAIL = """\
New words are explained where they first appear, and all of them in the
[glossary](../docs/glossary.md). The checks judge what your function does, not how it is written;
solutions are in the folder `notebooks/solutions`. To write a lesson of your own, read
[docs/add_a_lesson.md](../docs/add_a_lesson.md)."""


@dataclass(frozen=True)
class LessonLine:
    """What the contents say about a lesson. `name` and `file` are its notebook and the file to read."""

    name: str
    title: str
    question: str
    minutes: int
    file: str


def write_contents() -> None:
    """Write the notebook."""
    nbformat.write(nbformat.from_dict(contents()), CONTENTS)


def contents() -> dict[str, Any]:
    """Return the notebook as it should be."""
    rows = [_row(line) for line in lesson_lines()]
    table = ["| | lesson | question | minutes | to read |", "|---|---|---|---|---|", *rows]
    texts = [_HEAD, "\n".join(table), _TAIL]
    cells = [
        {"cell_type": "markdown", "id": f"m{number:02}", "metadata": {}, "source": text}
        for number, text in enumerate(texts)
    ]
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def lesson_lines() -> list[LessonLine]:
    """Return a line for each lesson, in order."""
    return [_line(nbformat.read(path, as_version=4), path.name) for path in lessons()]


def _line(notebook: Any, name: str) -> LessonLine:
    first = notebook.cells[0].source
    [title] = re.findall(r"^# \d\d (.+)$", first, re.MULTILINE)
    [minutes] = re.findall(r"^\*About (\d\d) minutes\.\*$", first, re.MULTILINE)
    asked = next(cell.source for cell in notebook.cells if part_of(cell) == "question")
    question = re.findall(r"\*\*([^*]+\?)\*\*", asked)[0].replace("\n", " ")
    return LessonLine(name, title, question, int(minutes), file_of(notebook))


def _row(line: LessonLine) -> str:
    read = f"[{line.file.removeprefix('../')}]({line.file})"
    lesson = f"[{line.title}]({line.name})"
    return f"| {line.name[:2]} | {lesson} | {line.question} | {line.minutes} | {read} |"


if __name__ == "__main__":
    write_contents()
