"""Clocks. The step loop reads the time from one, so a simulation only has to pass another clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """A clock that counts microseconds from the start of the run and never goes back."""

    name: str

    def now(self) -> int:
        """Return the number of whole microseconds since the clock was created."""
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
    """Simulated time, which passes only when a runner advances it."""

    name = "virtual"

    def __init__(self) -> None:
        self._now = 0

    def now(self) -> int:
        """See `Clock`."""
        return self._now

    def advance(self, microseconds: int) -> None:
        """Move the time forward by `microseconds`."""
        self._now += microseconds
