"""Find the notebooks of a class in a folder: which lesson, and whose.

A learner's file is a copy of a lesson. Teachers collect them in one folder for each student, or in one
folder with names such as `04_continuous_batching_ada.ipynb`. Learning platforms add words to a name.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grading.needed import calls_of_checks, code_cells, names_of, statements_of

NOTEBOOKS = Path(__file__).parents[1]
MOST_BYTES = 50 << 20
_CHECK = re.compile(r"\bcheck\.(lesson_\w+)\(")


@dataclass(frozen=True)
class Exercise:
    """A check of a lesson, and the names of the parts that the lesson gives it."""

    check: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Submission:
    """A learner's notebook. `file` is its path in the folder."""

    path: Path
    file: str
    student: str
    lesson: str
    exercises: tuple[Exercise, ...]


@dataclass(frozen=True)
class Unrecognised:
    """A file that is not graded, and why."""

    file: str
    reason: str


def find(folder: Path) -> tuple[list[Submission], list[Unrecognised]]:
    """Return the notebooks of a folder, sorted by student and lesson, and the other files."""
    found: list[Submission] = []
    others: list[Unrecognised] = []
    for path in sorted(folder.rglob("*")):
        file = path.relative_to(folder)
        if any(part.startswith(".") for part in file.parts) or path.is_dir():
            continue
        reason = _not_a_notebook(path)
        lesson = "" if reason else _lesson_of(path)
        if not reason and not lesson:
            reason = (
                f"no lesson: its name has none, such as {min(lessons())}, "
                "and none of its cells calls a check"
            )
        if reason:
            others.append(Unrecognised(str(file), reason))
        else:
            student = _student_of(folder, file, lesson)
            found.append(Submission(path, str(file), student, lesson, lessons()[lesson]))
    return sorted(found, key=lambda one: (one.student, one.lesson, one.file)), others


@cache
def lessons() -> dict[str, tuple[Exercise, ...]]:
    """Return each lesson's exercises, read from the lessons of this repository."""
    return {
        path.stem: exercises
        for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
        if (exercises := tuple(_exercises(path)))
    }


def _exercises(path: Path) -> Iterator[Exercise]:
    statements = [one for cell in code_cells(path) for one in statements_of(cell)]
    found = [
        Exercise(check, tuple(names_of(call)))
        for statement in statements
        for check, call in calls_of_checks(statement)
    ]
    yield from dict.fromkeys(found)


def _not_a_notebook(path: Path) -> str:
    if path.suffix != ".ipynb":
        return "not a notebook (.ipynb)"
    if not path.is_file():  # a pipe or a device
        return "not a file"
    size = path.stat().st_size
    return f"{size:,} bytes; at most {MOST_BYTES:,} are read" if size > MOST_BYTES else ""


def _lesson_of(path: Path) -> str:
    """Return the lesson that a file's name names, otherwise the one whose check it calls, or ""."""
    for name in lessons():
        if name in path.stem:
            return name
    text = path.read_text("utf-8", errors="replace")
    called = set(_CHECK.findall(text))
    for name, exercises in lessons().items():
        if called & {one.check for one in exercises}:
            return name
    numbered = re.match(r"(\d\d)(?!\d)", path.stem)
    return next((name for name in lessons() if numbered and name[:2] == numbered[1]), "")


def _student_of(folder: Path, file: Path, lesson: str) -> str:
    """Return the folder's name, or what a file's name has beside the lesson's."""
    if len(file.parts) > 1:
        return file.parts[0]
    rest = (
        file.stem.replace(lesson, "") if lesson in file.stem else file.stem.removeprefix(lesson[:2])
    )
    rest = re.sub(r" ?\(\d+\)$|-Copy\d+$", "", rest)  # of a browser, of JupyterLab
    return rest.strip("_-. ") or folder.resolve().name
