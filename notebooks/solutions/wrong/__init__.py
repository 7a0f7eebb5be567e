"""The recorded wrong answers: plausible parts, and the check's verdict on each.

`lesson_NN.py` has `WRONG`: behind each promise, the names of the parts that break it and their changes.
Most parts are the solution with a few changed words, so a reader sees at once what is wrong. Each finds
a promise or a message of its own.
"""

import inspect
import linecache
import textwrap
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from checks.broken import Broken
from checks.judging import Verdict, judge
from visualizer import read


class Wrong(NamedTuple):
    """A wrong part and the promise that it breaks.

    changes  words of the solution's source and what stands there instead, or code: the body of the
             function, or the methods of a class derived from `Solution`. Code may call `solution`
    """

    promise: str
    changes: dict[str, str] | str


def solution_of(lesson: str) -> Any:
    """The first function or class of a solution's module: the others help it."""
    module = import_module(f"solutions.{lesson}")
    parts = [one for one in vars(module).values() if inspect.isroutine(one) or inspect.isclass(one)]
    return next(one for one in parts if one.__module__ == module.__name__)


def made(lesson: str, name: str, changes: dict[str, str] | str) -> Any:
    """Return the solution with the changes, or a part of the same shape with its own code."""
    module, solution = import_module(f"solutions.{lesson}"), solution_of(lesson)
    if isinstance(changes, dict):
        source, written = inspect.getsource(module), solution.__name__
        for old, new in changes.items():
            assert old in source, f"the solution of {lesson} has no {old!r}"
            source = source.replace(old, new)
    else:
        parameters = inspect.signature(solution).parameters.values()
        names = ", ".join(str(one.replace(annotation=one.empty)) for one in parameters)
        kind = "class {}(Solution)" if inspect.isclass(solution) else f"def {{}}({names})"
        source, written = f"{kind.format(name)}:\n{textwrap.indent(changes, '    ')}\n", name
    file = f"<{lesson}: {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space = vars(module) | {
        "__name__": f"wrong.{lesson}.{name}",
        "solution": solution,
        "Solution": solution,
        "read": read,  # a lesson has imported it by then
    }
    exec(compile(source, file, "exec"), space)
    part = space[written]
    part.__name__ = name
    return part


LESSONS = sorted(path.stem for path in Path(__file__).parent.glob("lesson_*.py"))
# Pairs of a lesson and the name of a wrong part.
ROWS = {
    (lesson, name): Wrong(promise, changes)
    for lesson in LESSONS
    for promise, parts in import_module(f"solutions.wrong.{lesson}").WRONG.items()
    for name, changes in parts.items()
}


@cache
def cases_of(lesson: str) -> list[Any]:
    """The cases on which a lesson's wrong parts are tried, made once."""
    own = getattr(import_module(f"solutions.wrong.{lesson}"), "CASES", None)
    return list(own or import_module(f"checks.{lesson}").cases())


@cache
def verdict(lesson: str, name: str) -> Verdict:
    """Return what the check of a lesson says of a wrong part."""
    part = made(lesson, name, ROWS[lesson, name].changes)
    return judge(part, cases_of(lesson), import_module(f"checks.{lesson}").attempt)


def broken(lesson: str, name: str) -> Broken:
    """Return the promise that the check says a wrong part breaks. Raises AssertionError for none."""
    found = verdict(lesson, name).broken
    assert found is not None, f"the check of {lesson} accepts {name}"
    return found
