"""How often streams are written to: at once while few run, less often the more there are.

To write one event to one client costs some 40 us, half of it in the kernel, and while it lasts the
engine thread mostly stands still, because Python runs one thread at a time. With 64 streams and
a small model that is as much again as half a step. So a stream that was written to is left alone for
a moment that grows with the number of streams: a handful get each token by itself, 30 are written to
every 9 ms at most, 64 every 19 ms, which is about as often as a screen is drawn.
A stream's first token and its end never wait.

Source: vLLM and SGLang have `--stream-interval`, counted in tokens, which a lone stream feels, too.
"""

import asyncio
from collections.abc import Iterable

from server.generation import Generation

SECONDS_PER_STREAM = 300e-6


class Pace:
    """Wakes the handlers of streams that gained something. Lives on the event loop."""

    def __init__(self) -> None:
        self._behind: dict[Generation, None] = {}
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def note(self, generations: Iterable[Generation]) -> None:
        """These have gained something: wake them now, or when it is time."""
        self._behind.update(dict.fromkeys(generations))
        if self._behind and self._timer is None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._not_before:
                self._wake()
            else:
                self._timer = loop.call_at(self._not_before, self._wake)

    def _wake(self) -> None:
        self._timer = None
        # Whose client reads slowly is not written to now, and costs the others nothing.
        written = sum([generation.wake() for generation in self._behind])
        self._not_before = asyncio.get_running_loop().time() + SECONDS_PER_STREAM * written
        self._behind.clear()
