"""How often streams are written to: at once while few run, less often the more there are.

To write one event to one client costs some 40 us, most of it in the kernel, and while it lasts the
engine thread mostly stands still, because Python runs one thread at a time. With 64 streams and
a small model that is as much again as half a step. So a stream that was written to is left alone for
a moment that grows with the number of streams: six get each token by itself, 30 are written to
every 15 ms at most, 64 every 32 ms, thirty times a second. A stream's first token and its end never
wait.

While the streams are left alone the engine thread does not wake the event loop, either, unless for a
first token or an end: a thread that wakes up takes the GIL from the one that computes.

Source: vLLM and SGLang have `--stream-interval`, counted in tokens, which a lone stream feels, too.
"""

import asyncio
from collections.abc import Callable, Iterable

from server.core.request_stream import RequestStream

SECONDS_PER_STREAM = 500e-6
SHORTEST_REST = 3e-3  # below that, and so up to six streams, none
LONGEST_REST = 50e-3  # text that comes 20 times a second still flows


class Pace:
    """Wakes the handlers of streams that gained something. Lives on the event loop.

    resting   streams are left alone until a timer ends that; the engine thread reads this, too
    look      called when it ends: the engine may have handed over something meanwhile
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self.resting = False
        self._look = look
        self._behind: dict[RequestStream, None] = {}

    def note(self, generations: Iterable[RequestStream]) -> None:
        """These have gained something: wake them now, or when it is time."""
        self._behind.update(dict.fromkeys(generations))
        if not self.resting:
            self._wake()

    def _wake(self) -> None:
        # Whose client reads slowly is not written to now, and costs the others nothing.
        written = sum([generation.wake() for generation in self._behind])
        self._behind.clear()
        rest = SECONDS_PER_STREAM * written
        if rest > SHORTEST_REST:
            self.resting = True
            asyncio.get_running_loop().call_later(min(rest, LONGEST_REST), self._rested)

    def _rested(self) -> None:
        self.resting = False  # first: what the engine hands over from now on wakes the loop again
        self._look()
        if not self.resting:
            self._wake()
