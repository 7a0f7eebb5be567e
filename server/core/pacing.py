"""Decide how often to write to streams: the more streams there are, the less often.

Writing one event to one client takes about 40 us, most of it in the kernel. The engine thread mostly
stands still meanwhile, because Python runs one thread at a time. With 64 streams and a small model,
that adds up to half a step. So after each write, streams rest for a time that grows with their number:
up to six streams get each token separately, 30 streams are written to at most every 15 ms, and 64 at
most every 32 ms. A stream's first token and its end are never delayed.

Differs from vLLM and SGLang: they count `--stream-interval` in tokens, so it delays even a single
stream.
"""

import asyncio
from collections.abc import Callable, Iterable

from server.core.request_stream import RequestStream

SECONDS_PER_STREAM = 500e-6
MIN_REST = 3e-3  # shorter rests are skipped, so up to six streams never rest
MAX_REST = 50e-3  # text that arrives 20 times a second still looks smooth


class StreamPacer:
    """Wakes the handlers of streams with new output. Lives on the event loop.

    resting   whether streams rest until a timer fires; the engine thread reads this too: during a
              rest it wakes the event loop only for first tokens and ends, because a thread that
              wakes up takes the GIL
    on_rested called when the rest ends, because the engine may have delivered reports meanwhile
    """

    def __init__(self, on_rested: Callable[[], None]) -> None:
        self.resting = False
        self._on_rested = on_rested
        self._waiting: dict[RequestStream, None] = {}  # an ordered set

    def add(self, streams: Iterable[RequestStream]) -> None:
        """Wake the handlers of these streams now, or after the current rest."""
        self._waiting.update(dict.fromkeys(streams))
        if not self.resting:
            self._wake()

    def _wake(self) -> None:
        # A handler that is still writing to a slow client is not woken, so it does not count.
        written = sum([stream.wake() for stream in self._waiting])
        self._waiting.clear()
        rest = SECONDS_PER_STREAM * written
        if rest > MIN_REST:
            self.resting = True
            asyncio.get_running_loop().call_later(min(rest, MAX_REST), self._end_rest)

    def _end_rest(self) -> None:
        self.resting = False  # set first: from now on, every report from the engine wakes the loop
        self._on_rested()
        if not self.resting:
            self._wake()
