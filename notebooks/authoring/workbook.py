"""The learner's working copy of the lessons: `make lab` makes it and opens it.

The committed lessons have outputs, for readers who run nothing. A learner should meet each question
before its answer, and should not change files that git tracks. So `workbook/`, which git ignores, has a
copy of each lesson without any output from its first prediction on.

A copy that the learner has not touched follows the lesson. One that was worked in is never overwritten:
when its lesson has changed, a new copy is put beside it as `NN_name.new.ipynb`.
"""

import argparse
import hashlib
import json
import shutil
from pathlib import Path

import nbformat

from authoring.contents import CONTENTS
from authoring.lab import REPOSITORY
from authoring.parts import lessons
from authoring.spoilers import predictions

WORKBOOK = REPOSITORY / "workbook"
MADE = ".made.json"  # file name -> digest of the text that was written there


def update(folder: Path, fresh: str = "") -> list[str]:
    """Copy what is new into `folder`; return what was done, one line for each file that changed.

    `fresh` is a lesson's number: its copy is renamed to `NN_name.old.ipynb` and made afresh.
    """
    folder.mkdir(exist_ok=True)
    record = folder / MADE
    made: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
    said = _put_aside(folder, fresh) if fresh else []
    for lesson in [*lessons(), CONTENTS]:
        said += _copy(lesson, folder, made)
    record.write_text(json.dumps(made, indent=1))
    return said


def without_answers(lesson: Path) -> str:
    """Return a lesson as a learner gets it: no outputs from its first question on."""
    notebook = nbformat.read(lesson, as_version=4)
    first = min((one.asked for one in predictions(notebook.cells)), default=len(notebook.cells))
    for cell in notebook.cells[first:]:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    text: str = nbformat.writes(notebook)
    return text + "\n"


def _copy(lesson: Path, folder: Path, made: dict[str, str]) -> list[str]:
    text, target = without_answers(lesson), folder / lesson.name
    if not target.exists():
        _write(target, text, made)
        return []
    if made.get(target.name) == _digest(text):
        return []
    if _is_untouched(target, made):
        _write(target, text, made)
        return [f"{target.name}: brought up to date"]
    new = target.with_suffix(".new.ipynb")
    if made.get(new.name) == _digest(text):
        return []
    if new.exists() and not _is_untouched(new, made):
        return [f"{target.name} has changed again. You have worked in {new.name}, so it stays too"]
    _write(new, text, made)
    return [f"{target.name} has changed. Your file stays, the new version is {new.name}"]


def _is_untouched(copy: Path, made: dict[str, str]) -> bool:
    return _digest(copy.read_text("utf-8")) == made.get(copy.name)


def _write(target: Path, text: str, made: dict[str, str]) -> None:
    target.write_text(text, "utf-8")
    made[target.name] = _digest(text)


def _put_aside(folder: Path, fresh: str) -> list[str]:
    found = [lesson for lesson in lessons() if lesson.name.startswith(fresh)]
    if len(found) != 1:
        names = ", ".join(lesson.name[:2] for lesson in lessons())
        raise SystemExit(f"FRESH={fresh} names no lesson; choose one of {names}")
    mine = folder / found[0].name
    if not mine.exists():
        return []
    old, number = mine.with_suffix(".old.ipynb"), 1
    while old.exists():
        number += 1
        old = mine.with_suffix(f".old{number}.ipynb")
    shutil.move(mine, old)
    return [f"{mine.name}: your file is now {old.name}"]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main(arguments: list[str] | None = None) -> None:
    """Bring the workbook up to date and print what changed."""
    parser = argparse.ArgumentParser(prog="authoring.workbook", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--fresh", default="", help="put this lesson's copy aside, and make a new one"
    )
    said = update(WORKBOOK, parser.parse_args(arguments).fresh)
    print("\n".join([*said, f"The lessons are in {WORKBOOK.name}/. Your work there stays."]))


if __name__ == "__main__":
    main()
