"""Predictions, and checks of the parts that learners write.

    from checks import check, predict, until

`check.lesson_04(admit)` prints whether the learner's part keeps its promises and returns a part for
the engine: the learner's, or the engine's own until it passes. There is one file per lesson. They
share `judging.py` (cases and verdicts), `broken.py` (the exception), `guard.py` (running a learner's
code safely) and `prediction.py`. `until(log, step)` cuts a log for a picture
that must not show the future.
"""

import importlib
import importlib.util
from typing import Any

from checks.beginning import until
from checks.prediction import predict

__all__ = ["check", "predict", "until"]


class _Checks:
    """`check.lesson_04` is `check` in `checks/lesson_04.py`; a new lesson only adds a file."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("lesson_") or importlib.util.find_spec(f"checks.{name}") is None:
            raise AttributeError(f"there is no check {name!r}; they are called lesson_04 and so on")
        return importlib.import_module(f"checks.{name}").check


check = _Checks()
