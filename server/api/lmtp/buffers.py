"""Buffers: tokens that a session keeps on the server under a name of its own.

A stream with `keep` leaves its prompt and its output there when it ends; one with `from` goes on after
them, and nothing of that has to be sent again. Since somebody means to come back, the engine holds
their prefix: it stays in the radix tree, locked, until it is released or the session ends. How much
may be held is the engine's to limit (`engine/cache/holds.py`); what is not held is kept all the same,
and computed again when it is needed.

The event loop reads, the engine thread writes: a request's tokens are held between the step in which it
ends and the next one, before anything can be evicted.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from engine.engine import Engine
from engine.scheduling.request import Request
from server.core.bridge import Bridge
from server.http.errors import bad_request

MOST_BUFFERS = 64


@dataclass(frozen=True, slots=True)
class Buffer:
    """Tokens of one model. `hold` is the engine's id of what it holds, `held` how many that are."""

    tokens: list[int]
    hold: int
    held: int
    bridge: Bridge

    @property
    def model(self) -> str:
        """Whose tokens they are; it may have been unloaded since, and loaded again."""
        return self.bridge.settings.model_name

    def let_go(self) -> None:
        """Have the engine thread give the hold back; twice is harmless."""
        self.bridge.between_steps(lambda engine: engine.holds.release(self.hold))


class Buffers:
    """The buffers of one session."""

    def __init__(self) -> None:
        self._kept: dict[str, Buffer] = {}
        self._reserved = Counter[str]()  # name -> running requests that will keep a buffer under it
        self._closed = False
        self._lock = threading.Lock()

    def find(self, name: str) -> Buffer:
        """What is kept under a name. Raises ApiError where nothing is."""
        buffer = self._kept.get(name)
        if buffer is None:
            raise bad_request("from", f"from: there is no buffer {name!r}", "no_such_buffer")
        return buffer

    @contextmanager
    def place(self, name: str, bridge: Bridge) -> Iterator[Callable[[Engine, Request], None]]:
        """Reserve a buffer; yields what the engine thread calls when the request to keep ends.

        Reserved buffers count towards the limit, because many requests may run at once. Raises
        ApiError when there are too many.
        """
        with self._lock:
            taken = self._kept.keys() | self._reserved.keys()
            if name not in taken and len(taken) >= MOST_BUFFERS:
                message = f"a session has {MOST_BUFFERS} buffers at most: release one"
                raise bad_request("keep", message, "buffers_full")
            self._reserved[name] += 1

        def keep(engine: Engine, request: Request) -> None:
            with self._lock:
                if self._closed or request.finish_reason not in ("stop", "length"):
                    return
                if not self._reserved[name]:  # cancelled while its last step ran
                    return
                before = self._kept.get(name)
                if before is not None and before.bridge is bridge:
                    engine.holds.release(before.hold)  # first: it counts towards the limit
                elif before is not None:
                    before.let_go()
                hold = engine.holds.hold(request.tokens, label=request.label)
                held = len(hold.block_table) * engine.config.block_size
                self._kept[name] = Buffer(list(request.tokens), hold.id, held, bridge)

        try:
            yield keep
        finally:
            with self._lock:
                self._reserved[name] -= 1
                self._reserved += Counter()  # drops the names at 0

    def summary(self, name: str) -> dict[str, object]:
        """What a client is told of a buffer: its length, and how much of it is held in the cache."""
        buffer = self._kept.get(name)
        if buffer is None:  # released already
            return {"buffer": name, "tokens": 0, "held": 0}
        return {"buffer": name, "tokens": len(buffer.tokens), "held": buffer.held}

    def release(self, name: str) -> None:
        """Forget a buffer. Raises ApiError where there is none."""
        with self._lock:
            buffer = self._kept.pop(name, None)
        if buffer is None:
            raise bad_request("buffer", f"buffer: there is none named {name!r}", "no_such_buffer")
        buffer.let_go()

    def close(self) -> None:
        """The session is over: forget all of them, and keep nothing more."""
        with self._lock:
            self._closed = True
            for buffer in self._kept.values():
                buffer.let_go()
            self._kept.clear()
