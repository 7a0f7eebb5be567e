"""The process that runs one learner's code and the lesson's check.

It reads a job from standard input, as `grade_one` in `runner.py` writes it. To the file descriptor
`result` it writes two lines: before the learner's code runs, the unusual names in it; after the check,
the nonce and the verdict. What the learner's code prints is discarded.

The checks are imported before the learner's code runs and are then taken out of `sys.modules`: code
that patches `checks` patches another copy. The nonce is in this process's memory, so code that searches
the memory can forge a verdict.
"""

import asyncio
import importlib
import json
import linecache
import os
import random
import sys
import warnings
from dataclasses import dataclass
from inspect import CO_COROUTINE
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from grading.isolation import enter, isolate, limit, supervise
from grading.needed import Program, code_cells, program, unusual

MOST_CHARACTERS = 2_000  # of a message


@dataclass(frozen=True)
class _Checks:
    """The modules of a check, which the learner's code does not get when it imports them."""

    lesson: Any
    judging: Any
    guard: Any
    broken: Any


def main() -> None:
    """Do the job that standard input names."""
    job = json.loads(_line(0))
    if job["isolated"]:
        isolate(job["scratch"])
        enter()
    supervise(lifeline=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(job["scratch"])
    checks = _own_checks(job["check"])
    limit(job["seconds"], job["memory"], isolated=job["isolated"])
    needed = _needed(job)
    uses = unusual(needed) if isinstance(needed, Program) else []
    os.write(job["result"], f"{json.dumps(uses)}\n".encode())
    verdict = _verdict(needed, checks) if isinstance(needed, Program) else needed
    os.write(job["result"], f"{job['nonce']} {json.dumps(verdict)}\n".encode())
    os._exit(0)  # without the learner's threads and atexit functions


def _line(file: int) -> bytes:
    """Read a line and no byte more."""
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(file, 1) or b"\n"
    return line


def _own_checks(name: str) -> _Checks:
    names = (f"checks.{name}", "checks.judging", "checks.guard", "checks.broken")
    checks = _Checks(*map(importlib.import_module, names))
    for module in [one for one in sys.modules if one.partition(".")[0] == "checks"]:
        del sys.modules[module]
    sys.modules["solutions"] = None  # type: ignore[assignment]  # importing them raises ImportError
    return checks


def _needed(job: dict[str, Any]) -> Program | dict[str, Any]:
    """Return what the notebook's exercise needs, or the row of a notebook without it."""
    try:
        cells = code_cells(Path(job["notebook"]))
        needed = program(cells, job["check"], job["parts"], job["others"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _row("failed", f"The file is not a notebook: {type(error).__name__}: {error}")
    defined = {name for one in needed.statements for name in one.binds}
    if not defined & {*needed.parts.co_names, "*"}:
        return _unwritten(needed, f"No cell before the check defines {', '.join(job['parts'])}.")
    for cell in cells:  # for messages that show a line
        lines = cell.source.splitlines(keepends=True)
        linecache.cache[cell.name] = (len(cell.source), None, lines, cell.name)
    return needed


def _verdict(needed: Program, checks: _Checks) -> dict[str, Any]:
    """Run the learner's code and the check, and return the row's facts."""
    namespace = ModuleType("__main__")
    sys.modules["__main__"] = namespace  # pickle and dataclasses look there
    warnings.simplefilter("ignore")
    random.seed(0)
    code = type("Your code", (), {"__module__": "__main__"})  # the name in the guard's messages
    try:
        with checks.guard.watched(code):
            for statement in needed.statements:
                _run(statement.code, vars(namespace))
            part, *_ = _run(needed.parts, vars(namespace))
    except checks.broken.Broken as error:
        return _row("failed", f"{error.did} {error.look}")
    except checks.guard.NotWrittenError:
        return _unwritten(needed, "not written yet")
    lesson = checks.lesson
    return _judged(needed, checks.judging.judge(part, lesson.cases(), lesson.attempt))


def _judged(needed: Program, found: Any) -> dict[str, Any]:
    """Return the row of a check's `Verdict`."""
    if found.passed:
        return _row("passed", f"{found.name} keeps its promises in all {found.tried:,} cases.")
    if found.unwritten:
        return _unwritten(needed, f"not written yet: {', '.join(found.unwritten)}")
    message = f"{found.broken.did} Promise broken: {found.broken.promise}."
    return _row("failed", message, details=str(found))


def _unwritten(needed: Program, message: str) -> dict[str, Any]:
    """Return a row for a part that is missing, perhaps because its cell is not Python."""
    if needed.broken:
        return _row("failed", "; ".join(needed.broken))
    return _row("not written", message)


def _row(result: str, message: str, *, details: str = "") -> dict[str, Any]:
    return {
        "result": result,
        "message": message[:MOST_CHARACTERS],
        "details": details[:MOST_CHARACTERS],
    }


def _run(code: CodeType, namespace: dict[str, Any]) -> Any:
    answer = eval(code, namespace)
    return asyncio.run(answer) if code.co_flags & CO_COROUTINE else answer
