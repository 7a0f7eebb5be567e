"""Clocks. The step loop reads time from one, so that a simulated run differs by its clock alone."""

import time
from typing import Protocol


class Clock(Protocol):
    """Microseconds since the run started, never going back."""

    name: str

    def now(self) -> int:
        """The time, in integer microseconds since the clock was made."""
        ...


class WallClock:
    """Real time."""

    name = "wall"

    def __init__(self) -> None:
        self._start = time.perf_counter_ns()

    def now(self) -> int:
        """Microseconds of real time since the clock was made."""
        return (time.perf_counter_ns() - self._start) // 1000


class VirtualClock:
    """Time that passes only when a runner that pretends to compute says so."""

    name = "virtual"

    def __init__(self) -> None:
        self._now = 0

    def now(self) -> int:
        """Microseconds of pretended time."""
        return self._now

    def advance(self, microseconds: int) -> None:
        """Let time pass."""
        self._now += microseconds
