"""An answer about a whole event log that all who ask share: thirty pages cost what one costs.

A page asks again and again, and each answer reads the log, which may be long. So an answer is kept
for some time, and meanwhile everyone gets it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

KEPT = 20  # times as long as it took: answering takes at most a twentieth of the time
T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """The latest answer, computed by one caller at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._answer: T | None = None
        self._until = 0.0

    async def get(self, compute: Callable[[], Awaitable[T]]) -> T:
        """Return the kept answer, or a new one. An error of `compute` is raised and not kept."""
        async with self._turn:
            begin = time.monotonic()
            if self._answer is None or begin >= self._until:
                self._answer = await compute()
                now = time.monotonic()
                self._until = now + KEPT * (now - begin)
            return self._answer
