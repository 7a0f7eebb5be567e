"""Try a part on many cases and report the smallest one that fails.

A lesson has its cases, the smallest first, and a function that tries the part on one of them and raises
Broken for the first broken promise. A check tests promises, never the implementation: every part that
keeps them is right. A message says what happened and where to look, never what to write.
"""

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from checks.broken import Broken, CommonPromise
from checks.guard import NotWrittenError, stubs

Case = TypeVar("Case")


@dataclass(frozen=True)
class Verdict:
    """The result of a check. Printed, it is the message."""

    name: str
    tried: int
    unwritten: tuple[str, ...] = ()
    case: str = ""
    broken: Broken | None = None

    @property
    def passed(self) -> bool:
        """Whether every promise was kept in every case."""
        return not self.unwritten and self.broken is None

    def __str__(self) -> str:
        if self.unwritten:
            missing = listed(self.unwritten)
            return f"{missing}: not written yet. Until then the lesson uses its own."
        if self.broken is None:
            return f"{self.name} keeps its promises in all {self.tried:,} cases. It runs below."
        message = {
            "The case": self.case,
            "What happened": self.broken.did,
            "Promise broken": self.broken.promise,
            "Where to look": self.broken.look,
        }
        lines = [f"{self.name}: not yet. This is the smallest case that goes wrong.", ""]
        for title, words in message.items():
            lines += textwrap.wrap(
                words, 88, initial_indent=f"{title:16}", subsequent_indent=" " * 16
            )
        return "\n".join([*lines, "", "Until it passes, the lesson uses its own."])


def judge(
    part: Any, cases: Iterable[Case], attempt: Callable[[Any, Case], None], name: str = ""
) -> Verdict:
    """Try a part on the cases, the smallest first, until a promise is broken.

    `attempt` raises Broken for that. `str(case)` describes a case. `name` is the part's name in the
    message; by default its own.
    """
    if not callable(part) or not hasattr(part, "__name__"):
        return _not_a_part(part, name)
    name = name or (part.__name__ if isinstance(part, type) else f"{part.__name__}()")
    if missing := stubs(part):
        return Verdict(name, 0, tuple(missing))
    tried = 0
    for case in cases:
        try:
            attempt(part, case)
        except NotWrittenError:
            return Verdict(name, tried, (name,))
        except Broken as broken:
            return Verdict(name, tried, case=str(case), broken=broken)
        tried += 1
    return Verdict(name, tried)


def _not_a_part(given: Any, name: str) -> Verdict:
    """Return the verdict on an argument that is neither a function nor a class."""
    broken = Broken(
        f"You passed {given!r}."[:200],
        CommonPromise.IS_A_PART,
        "Does the check's cell call it, instead of naming it?",
    )
    return Verdict(name or "Your part", 0, case="None could be tried.", broken=broken)


def listed(names: Iterable[object]) -> str:
    """ "A", "A and B", "A, B and C", or "none"."""
    *rest, last = [str(name) for name in names] or ["none"]
    return f"{', '.join(rest)} and {last}" if rest else last


def counted(number: int, noun: str) -> str:
    """ "1 block", "3 blocks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def whole(value: object) -> int | None:
    """Return a whole number, also numpy's, as an int; None for anything else."""
    return int(value) if hasattr(value, "__index__") and not isinstance(value, bool) else None
