"""Python's garbage collector works while nobody waits.

Reference counts free nearly everything at once; what the collector looks for are cycles. To find them
it goes through every young object, the event log's among them, and all streams stand still: 8 ms for
every 20,000 objects and some 75 ms for the older ones, 3 to 6 % of the time with 64 streams (measured
with the bundled model). So it is left to look by itself only now and then, and looks when the last
request has left.

Source: vLLM freezes its heap, too (`vllm/utils/gc_utils.py`).
"""

import asyncio
import gc

SECONDS_OF_PEACE = 0.1
# New objects that have gone nowhere, until it looks also under load. A busy server gets there once
# while its log's window fills, and then again only by cycles.
MOST_OBJECTS = 500_000
YOUNG = 1  # the generations that it goes through; what is older has been looked through before


def keep_what_is_loaded() -> None:
    """What there is now stays, and is never looked through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(MOST_OBJECTS)


class IdleGarbageCollector:
    """While no request is in. Lives on the event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._event.set()
        self._timer: asyncio.TimerHandle | None = None

    def begins(self) -> None:
        """The last request has left: collect, unless another comes at once."""
        self._event.set()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SECONDS_OF_PEACE, gc.collect, YOUNG)

    def ends(self) -> None:
        """A request comes, or the server stops."""
        self._event.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait(self) -> None:
        """Until no request is in."""
        await self._event.wait()
