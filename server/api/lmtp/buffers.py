"""Buffers: tokens that a session keeps on the server under a name of its choice.

A stream with `keep` stores its prompt and output in a buffer when it ends. A stream with `from`
continues from a buffer's tokens without sending them again. The engine holds a buffer's prefix: the
prefix stays locked in the radix tree until the buffer is released or the session ends. The engine
limits how much may be held (`engine/cache/holds.py`). Tokens beyond that limit stay in the buffer and
are computed again when needed.

The event loop reads buffers, and the engine thread writes them. The engine thread holds a request's
tokens right after the step in which the request ends, before anything can be evicted.
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

MAX_BUFFERS = 64


@dataclass(frozen=True, slots=True)
class Buffer:
    """Tokens of one model. `hold` is the id of the engine's hold, `held` how many tokens it locks."""

    tokens: list[int]
    hold: int
    held: int
    bridge: Bridge

    @property
    def model(self) -> str:
        """The model's name; the model may have been unloaded and loaded again since."""
        return self.bridge.settings.model_name

    def release_hold(self) -> None:
        """Have the engine thread release the hold; harmless if it is already released."""
        self.bridge.between_steps(lambda engine: engine.holds.release(self.hold))


class Buffers:
    """The buffers of one session."""

    def __init__(self) -> None:
        self._kept: dict[str, Buffer] = {}
        self._reserved = Counter[str]()  # name -> running requests that will store a buffer there
        self._closed = False
        self._lock = threading.Lock()

    def find(self, name: str) -> Buffer:
        """Return a buffer. Raises ApiError if no buffer has this name."""
        buffer = self._kept.get(name)
        if buffer is None:
            raise bad_request("from", f"from: there is no buffer {name!r}", "no_such_buffer")
        return buffer

    @contextmanager
    def reserve(self, name: str, bridge: Bridge) -> Iterator[Callable[[Engine, Request], None]]:
        """Reserve a buffer, and yield the function that stores it on the engine thread.

        The engine thread calls that function when the request ends. Reserved buffers count towards
        the limit because many requests may run at once. Raises ApiError if there are too many.
        """
        with self._lock:
            names = self._kept.keys() | self._reserved.keys()
            if name not in names and len(names) >= MAX_BUFFERS:
                message = f"keep: the session has {MAX_BUFFERS} buffers, the maximum: release one"
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
                    engine.holds.release(before.hold)  # before the new hold, as it counts
                elif before is not None:
                    before.release_hold()
                hold = engine.holds.hold(request.tokens, label=request.label)
                held = len(hold.block_table) * engine.config.block_size
                self._kept[name] = Buffer(list(request.tokens), hold.id, held, bridge)

        try:
            yield keep
        finally:
            with self._lock:
                self._reserved[name] -= 1
                self._reserved += Counter()  # removes names whose count is 0

    def summary(self, name: str) -> dict[str, object]:
        """Describe a buffer to a client: its length, and how many of its tokens the cache holds."""
        buffer = self._kept.get(name)
        if buffer is None:  # already released
            return {"buffer": name, "tokens": 0, "held": 0}
        return {"buffer": name, "tokens": len(buffer.tokens), "held": buffer.held}

    def release(self, name: str) -> None:
        """Delete a buffer. Raises ApiError if no buffer has this name."""
        with self._lock:
            buffer = self._kept.pop(name, None)
        if buffer is None:
            raise bad_request("buffer", f"buffer: there is no buffer {name!r}", "no_such_buffer")
        buffer.release_hold()

    def close(self) -> None:
        """Delete all buffers when the session ends, and store no new ones."""
        with self._lock:
            self._closed = True
            for buffer in self._kept.values():
                buffer.release_hold()
            self._kept.clear()
