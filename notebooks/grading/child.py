"""The process that runs one learner's code and the lesson's check.

It reads a job from standard input: {"notebook", "check", "part", "nonce", "scratch", "isolated",
"seconds", "memory", "result"}. To the file descriptor `result` it writes "ready", when the imports are
done, and then one line: the nonce and the verdict. What the learner's code prints is discarded.

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
from collections.abc import Callable
from inspect import CO_COROUTINE
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from grading.isolation import enter, isolate, limit, supervise
from grading.needed import Cell, program

MOST_WORDS = 2_000  # characters of a message


def main() -> None:
    """Do the job that standard input names."""
    job = json.loads(_line(0))
    if job["isolated"]:
        isolate(job["scratch"])
        enter()
    supervise(lifeline=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(job["scratch"])
    judge = _own_checks(job["check"])
    limit(job["seconds"], job["memory"], isolated=job["isolated"])
    os.write(job["result"], b"ready\n")
    verdict = _verdict(job, judge)
    os.write(job["result"], f"{job['nonce']} {json.dumps(verdict)}\n".encode())
    os._exit(0)  # without the learner's threads and atexit functions


def _line(file: int) -> bytes:
    """Read a line and no byte more."""
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(file, 1) or b"\n"
    return line


def _own_checks(name: str) -> Callable[[Callable[[], Any]], Any]:
    """Return a function that judges a part with checks that the learner's code does not import."""
    lesson = importlib.import_module(f"checks.{name}")
    judging = importlib.import_module("checks.judging")
    guard = importlib.import_module("checks.guard")
    broken = importlib.import_module("checks.broken")
    for module in [one for one in sys.modules if one.partition(".")[0] == "checks"]:
        del sys.modules[module]
    sys.modules["solutions"] = None  # type: ignore[assignment]  # importing them raises ImportError

    def judge(make: Callable[[], Any]) -> Any:
        # The whole code under the name that the guard prints: "Your code raised ...".
        code = type("Your code", (), {"__module__": "__main__"})
        try:
            with guard.watched(code):
                part = make()
        except broken.Broken as error:
            return judging.Verdict("Your code", 0, broken=error)
        return judging.judge(part, lesson.cases(), lesson.attempt)

    return judge


def _verdict(job: dict[str, Any], judge: Callable[[Callable[[], Any]], Any]) -> dict[str, Any]:
    """Return the row's facts: passed, written, message and details."""
    try:
        needed = program(_cells(Path(job["notebook"])), job["check"], job["part"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _row(False, f"The file is no notebook: {type(error).__name__}: {error}")
    namespace = ModuleType("__main__")
    sys.modules["__main__"] = namespace  # pickle and dataclasses look there
    warnings.simplefilter("ignore")
    random.seed(0)

    def make() -> Any:
        for statement in needed.statements:
            _run(statement.code, vars(namespace))
        return _run(needed.part, vars(namespace))

    defined = {name for one in needed.statements for name in one.binds}
    if not defined & {*needed.part.co_names, "*"}:
        return _row(
            False,
            "; ".join(needed.broken) or f"No cell before the check defines {job['part']}.",
            written=bool(needed.broken),
        )
    found = judge(make)
    if found.passed:
        return _row(True, f"{found.name} keeps its promises in all {found.tried:,} cases.")
    if found.unwritten:
        missing = ", ".join(found.unwritten)
        broken = "; ".join(needed.broken)
        return _row(False, broken or f"not written yet: {missing}", written=bool(broken))
    message = f"{found.broken.did} Promise broken: {found.broken.promise}."
    return _row(False, message, details=str(found))


def _row(passed: bool, message: str, *, written: bool = True, details: str = "") -> dict[str, Any]:
    return {
        "passed": passed,
        "written": written,
        "message": message[:MOST_WORDS],
        "details": details[:MOST_WORDS],
    }


def _cells(path: Path) -> list[Cell]:
    """Return the notebook's code cells, known to `linecache` for messages that show a line."""
    sources = [
        "".join(cell["source"])
        for cell in json.loads(path.read_bytes())["cells"]
        if cell["cell_type"] == "code"
    ]
    cells = [Cell(number, source) for number, source in enumerate(sources, 1)]
    for cell in cells:
        lines = cell.source.splitlines(keepends=True)
        linecache.cache[cell.name] = (len(cell.source), None, lines, cell.name)
    return cells


def _run(code: CodeType, namespace: dict[str, Any]) -> Any:
    answer = eval(code, namespace)
    return asyncio.run(answer) if code.co_flags & CO_COROUTINE else answer
