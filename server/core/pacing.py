"""How often streams are written to: at once while few run, less often the more there are.

Writing one event to one client takes about 40 us, most of it in the kernel, and meanwhile the engine
thread mostly stands still, because Python runs one thread at a time. With 64 streams and a small
model, that is as long as half a step. So after a write, streams rest for a time that grows with their
number: up to six streams get each token separately, 30 are written to every 15 ms at most, 64 every
32 ms. First tokens and ends never wait.

Differs from vLLM and SGLang: their `--stream-interval` is counted in tokens, so it also delays a
single stream.
"""

import asyncio
from collections.abc import Callable, Iterable

from server.core.request_stream import RequestStream

SECONDS_PER_STREAM = 500e-6
MIN_REST = 3e-3  # streams do not rest for less, so up to six streams never rest
MAX_REST = 50e-3  # text that arrives 20 times a second still looks fluent


class StreamPacer:
    """Wakes the handlers of streams with new output. Lives on the event loop.

    resting   streams rest until a timer fires; the engine thread reads this too, and wakes the event
              loop meanwhile only for first tokens and ends: a thread that wakes takes the GIL
    on_rested called when the rest ends, because the engine may have delivered reports meanwhile
    """

    def __init__(self, on_rested: Callable[[], None]) -> None:
        self.resting = False
        self._on_rested = on_rested
        self._waiting: dict[RequestStream, None] = {}  # in order, each once

    def add(self, streams: Iterable[RequestStream]) -> None:
        """Wake the handlers of these streams, now or after the rest."""
        self._waiting.update(dict.fromkeys(streams))
        if not self.resting:
            self._wake()

    def _wake(self) -> None:
        # A stream with a slow client is not written to now, so it does not count.
        written = sum([stream.wake() for stream in self._waiting])
        self._waiting.clear()
        rest = SECONDS_PER_STREAM * written
        if rest > MIN_REST:
            self.resting = True
            asyncio.get_running_loop().call_later(min(rest, MAX_REST), self._end_rest)

    def _end_rest(self) -> None:
        self.resting = False  # first: a report that the engine delivers from now on wakes the loop
        self._on_rested()
        if not self.resting:
            self._wake()
