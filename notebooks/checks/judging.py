"""Trying a part on many cases, and saying what the smallest failing one shows.

A lesson brings its cases, the smallest first, and a function that tries the part on one and raises
Broken for the first promise that is not kept. Only what was promised is checked, never how: every part
that keeps the promises is right. A message says what happened and where to look, never what to write.
"""

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from checks.broken import Broken
from checks.guard import NotWrittenError, stubs

Case = TypeVar("Case")


@dataclass(frozen=True)
class Verdict:
    """How a part did. Printed, it is the message."""

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
            return f"{missing}: not written yet. Until it is, the lesson goes on with its own."
        if self.broken is None:
            return f"{self.name} keeps its promises in all {self.tried:,} cases. It runs below."
        told = {
            "The case": self.case,
            "What happened": self.broken.did,
            "Promise broken": self.broken.promise,
            "Where to look": self.broken.look,
        }
        lines = [f"{self.name}: not yet. This is the smallest case that goes wrong.", ""]
        for title, words in told.items():
            lines += textwrap.wrap(
                words, 88, initial_indent=f"{title:16}", subsequent_indent=" " * 16
            )
        return "\n".join([*lines, "", "Until it passes, the lesson goes on with its own."])


def judge(
    part: Any, cases: Iterable[Case], attempt: Callable[[Any, Case], None], name: str = ""
) -> Verdict:
    """Try a part on every case, which come smallest first, until a promise is broken.

    `attempt` raises Broken for that. `str(case)` is how a case is told. `name` is what to call the
    part, whose own name it is by default.
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
    """For whoever hands over what a function answered, or an object of a class."""
    broken = Broken(
        f"You handed over {given!r}."[:200],
        "the check gets the function or the class itself",
        "In the cell of the check: is there a call where only a name should be?",
    )
    return Verdict(name or "Your part", 0, case="None could be tried.", broken=broken)


def listed(names: Iterable[object]) -> str:
    """ "A", "A and B", "A, B and C", or "nobody"."""
    *rest, last = [str(name) for name in names] or ["nobody"]
    return f"{', '.join(rest)} and {last}" if rest else last


def counted(number: int, noun: str) -> str:
    """ "1 block", "3 blocks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
