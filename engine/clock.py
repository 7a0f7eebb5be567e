"""Clocks. The step loop reads the time from one, so a simulation only needs another clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """Microseconds since the start of the run; they never decrease."""

    name: str

    def now(self) -> int:
        """Return the whole microseconds since the clock was made."""
        ...


class WallClock:
    """Real time."""

    name = "wall"

    def __init__(self) -> None:
        self._start = time.perf_counter_ns()

    def now(self) -> int:
        """See `Clock`."""
        return (time.perf_counter_ns() - self._start) // 1000


class VirtualClock:
    """Simulated time: it passes only when a runner advances it."""

    name = "virtual"

    def __init__(self) -> None:
        self._now = 0

    def now(self) -> int:
        """See `Clock`."""
        return self._now

    def advance(self, microseconds: int) -> None:
        """Advance the time."""
        self._now += microseconds
