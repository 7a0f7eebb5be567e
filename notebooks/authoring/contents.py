"""Make the contents, and say in each lesson how long it takes and what follows: `make contents`."""

import re
import sys
from dataclasses import dataclass
from typing import Any

import nbformat

from authoring.lab import NOTEBOOKS
from authoring.minutes import GENERATED, Minutes, minutes_of
from authoring.parts import METADATA, file_of, lessons, part_of
from authoring.routes import ROUTES, Route, onward

CONTENTS = NOTEBOOKS / "contents.ipynb"
FEW = 8  # lessons of a route
_HEAD = """\
# Underglass: the lessons

This is a course on how a language model is served: what the machine remembers, which request gets its
time and its memory, and why. Each lesson asks a question, lets you predict the answer, and then shows
you what happened. You need neither a GPU nor an account.

Run a cell with Shift+Enter. Click on a picture; then `.` and `,` step through the run, and a click on
anything tells you more about it. Change what you like and run the cell again. (A line with `assert`
checks a number in the text, so delete it first.) `make lab` and `underglass lab` open copies of the
lessons, so your work is safe there."""
_ROUTES = """\
## Three ways through

Pick the one you have time for. Each lesson ends by saying where your route goes on."""
_LESSONS = """\
## The lessons

The first number of minutes is for reading, running and guessing; the second one is for the exercise, in
which you write a part of the engine. Lessons without a second number are short."""
_TAIL = """\
New terms are explained where they first appear, and the [glossary](../docs/glossary.md) has them all.
The checks judge what your function does, not how it's written; the folder `notebooks/solutions` has a
solution of each exercise. If you'd like to write a lesson of your own, read
[docs/add_a_lesson.md](../docs/add_a_lesson.md)."""


@dataclass(frozen=True)
class LessonLine:
    """What the contents say about a lesson. `name` and `file` are its notebook and the file to read."""

    name: str
    title: str
    question: str
    minutes: Minutes
    file: str


def main(names: list[str]) -> None:
    """Write the lines about time and routes of these lessons, by default of all, and the contents."""
    for path in (one for one in lessons() if not names or one.name.startswith(tuple(names))):
        notebook = nbformat.read(path, as_version=4)
        before = nbformat.from_dict(notebook)
        if settled(notebook, path.name[:2]) != before:
            nbformat.write(notebook, path)
    write_contents()


def settled(notebook: Any, lesson: str) -> Any:
    """Put the lesson's minutes below its title and the routes at its end. Returns the notebook."""
    minutes = minutes_of(notebook.cells, lesson)
    hook, last = notebook.cells[0], notebook.cells[-1]
    hook.source = GENERATED.sub(f"*{minutes}*", hook.source, count=1)
    last.source = f"{GENERATED.sub('', last.source).rstrip()}\n\n*{onward(lesson)}*"
    return notebook


def write_contents() -> None:
    """Write the notebook."""
    nbformat.write(nbformat.from_dict(contents()), CONTENTS)


def contents() -> dict[str, Any]:
    """Return the notebook as it should be."""
    lines = lesson_lines()
    table = ["| | lesson | question | minutes | to read |", "|---|---|---|---|---|"]
    table += [_row(line) for line in lines]
    texts = [_HEAD, f"{_ROUTES}\n\n{routes()}", _LESSONS + "\n\n" + "\n".join(table), _TAIL]
    cells = [
        {"cell_type": "markdown", "id": f"m{number:02}", "metadata": {}, "source": text}
        for number, text in enumerate(texts)
    ]
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def routes(folder: str = "") -> str:
    """Return the table of the routes, for a page from which the lessons are in `folder`."""
    lines = lesson_lines()
    rows = ["| route | lessons | you learn |", "|---|---|---|"]
    return "\n".join([*rows, *(_way(route, lines, folder) for route in ROUTES)]) + "\n"


def lesson_lines() -> list[LessonLine]:
    """Return a line for each lesson, in order."""
    return [_line(nbformat.read(path, as_version=4), path.name) for path in lessons()]


def hours(route: Route, lines: list[LessonLine]) -> float:
    """Return the hours that a route takes, its exercises included."""
    minutes = sum(
        line.minutes.reading + line.minutes.exercise * (line.name[:2] in route.exercises)
        for line in lines
        if line.name[:2] in route.lessons
    )
    return minutes / 60


def _line(notebook: Any, name: str) -> LessonLine:
    first = notebook.cells[0].source
    [title] = re.findall(r"^# \d\d (.+)$", first, re.MULTILINE)
    asked = next(cell.source for cell in notebook.cells if part_of(cell) == "question")
    question = re.findall(r"\*\*([^*]+\?)\*\*", asked)[0].replace("\n", " ")
    minutes = minutes_of(notebook.cells, name[:2])
    return LessonLine(name, title, question, minutes, file_of(notebook))


def _way(route: Route, lines: list[LessonLine], folder: str) -> str:
    taken = [line for line in lines if line.name[:2] in route.lessons]
    links = [f"[{line.name[:2]}]({folder}{line.name})" for line in taken]
    before = lines[: lines.index(taken[-1])]
    left_out = [line.name[:2] for line in before if line not in taken]
    if len(left_out) < len(taken):  # those that are left out say it more briefly
        without = f" without {', '.join(left_out)}" if left_out else ""
        links = [f"{links[0]} to {links[-1]}{without}"]
    elif len(taken) <= FEW:  # the titles fit, and say more than numbers
        links = [f"[{line.title}]({folder}{line.name})," for line in taken]
    name = f"**{route.name}**" + (f", {hours(route, lines):.0f} hours" if route.is_all else "")
    *most, last = route.exercises
    exercises = "" if route.is_all else f"; exercises: {', '.join(most)} and {last}"
    return f"| {name} | {' '.join(links).rstrip(',')}{exercises} | {route.promise} |"


def _row(line: LessonLine) -> str:
    read = f"[{line.file.removeprefix('../')}]({line.file})"
    lesson = f"[{line.title}]({line.name})"
    exercise = f" + {line.minutes.exercise}" if line.minutes.exercise else ""
    minutes = f"{line.minutes.reading}{exercise}"
    return f"| {line.name[:2]} | {lesson} | {line.question} | {minutes} | {read} |"


if __name__ == "__main__":
    main(sys.argv[1:])
