"""`underglass grade`: run the lessons' checks over the notebooks of a class.

Its core is `notebooks/grading`, beside the lessons and their checks.
"""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from underglass.commands.environment import option
from underglass.commands.options import fail
from underglass.workbook import LESSONS

_limits = partial(option, "Limits of each notebook")
_ISOLATED = (
    "Each notebook ran without a network; it could read files, but write only to a scratch folder."
)
_NOT_ISOLATED = (
    "This system does not isolate a process ({reason}): "
    "notebooks could use the network and your files."
)


def grade(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="The learners' notebooks: a folder for each student, or names such as "
            "04_continuous_batching_ada.ipynb.",
        ),
    ],
    write: Annotated[
        list[Path],
        option("Options", "Write the table to this file, too: .csv or .html. Repeatable."),
    ] = [],  # noqa: B006 (Typer copies it)
    jobs: Annotated[
        int, option("Options", "Notebooks to check at the same time.", min=1, max=256)
    ] = os.cpu_count() or 1,
    seconds: Annotated[
        int, _limits("CPU seconds; the wall time may be three times as long.", min=1, max=3600)
    ] = 30,
    memory: Annotated[
        int, _limits("Memory in MB, beyond what the check itself needs.", min=64, max=65536)
    ] = 1024,
) -> None:
    """Run the lessons' checks over a class's notebooks and print a table.

    Each notebook runs in a process of its own, with limited CPU time, wall time, memory, output and
    number of processes. On Linux it has no network and cannot write files, if the system
    allows that. This is not a security boundary: it stops accidents and simple tricks, and a
    determined student can forge a grade. docs/teaching.md says how.

    Only the exercise runs: the part that the check's cell names, and the statements of the cells above
    that it uses. A notebook's pictures and other outputs do not matter.
    """
    if os.name != "posix":
        fail("grade needs Linux or macOS; on Windows, run it in WSL")
    if not folder.is_dir():
        fail(f"FOLDER must be a folder with notebooks, got {folder}")
    for path in write:
        if path.suffix not in (".csv", ".html"):
            fail(f"--write must end in .csv or .html, got {path}")
    sys.path.insert(0, str(LESSONS))
    from tqdm import tqdm

    from grading import runner, submissions, table

    found, others = submissions.find(folder)
    if not found:
        reasons = "".join(f"\n  {one.file}: {one.reason}" for one in others)
        fail(f"there is no learner's notebook in {folder}{reasons}")
    reason = runner.unavailable()
    limits = runner.Limits(seconds, memory << 20)
    rows = runner.grade(found, limits, isolated=not reason, jobs=jobs)
    count = sum(len(one.exercises) for one in found)
    graded = list(tqdm(rows, total=count, unit="notebook", leave=False, disable=None))
    isolation = _NOT_ISOLATED.format(reason=reason) if reason else _ISOLATED
    report = table.Report(graded, others, isolation)
    typer.echo(table.text(report))
    for path in write:
        try:
            table.write(report, path)
        except OSError as error:
            fail(f"--write {path} cannot be written: {error.strerror}; choose another file")
