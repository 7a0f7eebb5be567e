"""What the lessons bring along: predictions, and checks of what a learner writes.

    from checks import check, predict, until

`check.lesson_04(admit)` says whether the learner's part keeps its promises and hands back a part for
the engine: the learner's, or the engine's own while theirs is not done. One file per lesson; what they
share is in `judging.py` (cases, promises, messages), `guard.py` (running what somebody else wrote) and
`prediction.py`. `until(log, step)` is for a picture that does not tell how it goes on.
"""

import importlib
import importlib.util
from typing import Any

from checks.beginning import until
from checks.prediction import predict

__all__ = ["check", "predict", "until"]


class _Checks:
    """`check.lesson_04` is `check` in `checks/lesson_04.py`: a new lesson adds a file, no more."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("lesson_") or importlib.util.find_spec(f"checks.{name}") is None:
            raise AttributeError(f"there is no check {name!r}; they are called lesson_04 and so on")
        return importlib.import_module(f"checks.{name}").check


check = _Checks()
