"""Predictions, and checks of the parts that learners write.

    from checks import check, predict, scenario, until

`check.lesson_04(admit)` prints whether the learner's part keeps its promises and returns a part for
the engine: the learner's, or the engine's own until it passes. With `hint=1` it prints a first hint,
with `hint=2` a second one.

There is one file per lesson. It has its ANSWERS and HINTS, and what the one judge (`judging.py`)
needs: `cases()`, the smallest first; `attempt(part, case)`, which raises Broken (`broken.py`); and
`adapt(part)`, which makes a part for the engine of the learner's, or of None. `guard.py` runs a
learner's code safely; `answer.py` and `prediction.py` have the predictions. `until(log, step)` cuts a
log for a picture that must not show the future. `scenario("twelve people, four seats")` is the run that
a lesson opens with (`scenarios.py`); `show`, `read` and `figures` are the visualizer's.
"""

import functools
import importlib
import importlib.util
import textwrap
from types import ModuleType
from typing import TYPE_CHECKING, Any

import underglass.shadowed  # noqa: F401 (first: it names a file that hides one of our packages)
from checks.beginning import until
from checks.judging import judge
from checks.prediction import predict

if TYPE_CHECKING:
    from checks.scenarios import scenario
    from visualizer import figures, read, show

__all__ = ["check", "figures", "predict", "read", "scenario", "show", "until"]


class _Checks:
    """`check.lesson_04` judges with `checks/lesson_04.py`; a new lesson only adds a file."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("lesson_") or importlib.util.find_spec(f"checks.{name}") is None:
            raise AttributeError(f"there is no check {name!r}; they are called lesson_04 and so on")
        return functools.partial(_run, importlib.import_module(f"checks.{name}"))


def _run(lesson: ModuleType, part: Any, *, hint: int = 0) -> Any:
    """Check the part; first print `hint` hints. Raises ValueError if there are not so many."""
    hints: tuple[str, ...] = lesson.HINTS
    if not 0 <= hint <= len(hints):
        raise ValueError(f"hint must be from 1 to {len(hints)}, got {hint}")
    for number, words in enumerate(hints[:hint], start=1):
        print(textwrap.fill(f"Hint {number} of {len(hints)}: {words}", 96))
    verdict = judge(part, lesson.cases(), lesson.attempt)
    print(verdict)
    return lesson.adapt(part if verdict.passed else None)


check = _Checks()


def __getattr__(name: str) -> Any:
    """Import what draws and runs when a lesson asks for it: a judge of learners' code needs neither."""
    if name not in __all__:
        raise AttributeError(f"module 'checks' has no attribute {name!r}")
    if name == "figures":
        return importlib.import_module("visualizer.figures")
    home = importlib.import_module("checks.scenarios" if name == "scenario" else "visualizer")
    return getattr(home, name)
