"""Buffers: lists of tokens that a session keeps on the server under names that the client chooses.

A stream with `keep` stores its prompt and output in a buffer when it ends. A stream with `from`
continues from a buffer's tokens without sending them again. The engine holds a buffer's prefix: the
prefix stays locked in the radix tree until the buffer is released or the session ends. The engine
limits the number of blocks that may be held (`engine/extensions/holds.py`). Tokens beyond that limit
stay in the buffer and are computed again when needed.

The engine thread acquires the hold right after the step in which the request ends, before any of its
blocks can be evicted, and reports the hold with the last tokens. The engine knows a buffer only by its
number. A buffer's next hold replaces the previous one.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from server.core.bridge import Bridge
from server.core.commands import Kept, ReleaseBuffer, numbers
from server.http.errors import bad_request

MAX_BUFFERS = 64


@dataclass(frozen=True, slots=True)
class Buffer:
    """Tokens of one model: the buffer's number, and how many of the tokens the engine holds."""

    tokens: list[int]
    number: int
    held: int
    bridge: Bridge

    @property
    def model(self) -> str:
        """The model's name. The model may have been unloaded and loaded again in the meantime."""
        return self.bridge.settings.model_name

    def release_hold(self) -> None:
        """Have the engine thread release the hold; harmless if it is already released."""
        self.bridge.client.post(ReleaseBuffer(0, self.number))


class Buffers:
    """The buffers of one session."""

    def __init__(self) -> None:
        self._kept: dict[str, Buffer] = {}
        self._numbers: dict[str, int] = {}  # of the names that are kept or reserved
        self._reserved = Counter[str]()  # name -> running requests that will store a buffer there
        self._closed = False

    def find(self, name: str) -> Buffer:
        """Return a buffer. Raises ApiError if no buffer has this name."""
        buffer = self._kept.get(name)
        if buffer is None:
            raise bad_request(
                "from", f"from: this session has no buffer {name!r}", "no_such_buffer"
            )
        return buffer

    @contextmanager
    def reserve(self, name: str | None) -> Iterator[int]:
        """Reserve a buffer while a request runs, and yield its number; 0 without a name.

        Reserved buffers count towards the limit because many requests may run at once. Raises ApiError
        if there are too many.
        """
        if name is None:
            yield 0
            return
        names = self._kept.keys() | self._reserved.keys()
        if name not in names and len(names) >= MAX_BUFFERS:
            message = f"keep: this session has {MAX_BUFFERS} buffers, the maximum: release a buffer"
            raise bad_request("keep", message, "buffers_full")
        self._reserved[name] += 1
        try:
            yield self._numbers.setdefault(name, next(numbers))
        finally:
            self._reserved[name] -= 1
            self._reserved += Counter()  # removes names whose count is 0
            self._drop_number(name)

    def _drop_number(self, name: str) -> None:
        if name not in self._kept and name not in self._reserved:
            del self._numbers[name]

    def store(self, name: str, kept: Kept, bridge: Bridge) -> None:
        """Store the tokens that the engine kept for a request in place of the buffer's content."""
        before = self._kept.get(name)
        if before is not None and before.bridge is not bridge:
            before.release_hold()
        buffer = Buffer(kept.tokens, self._numbers[name], kept.held, bridge)
        if self._closed:
            buffer.release_hold()
        else:
            self._kept[name] = buffer

    def summary(self, name: str) -> dict[str, object]:
        """Describe a buffer to a client: its length, and how many of its tokens the cache holds."""
        buffer = self._kept.get(name)
        if buffer is None:  # already released
            return {"buffer": name, "tokens": 0, "held": 0}
        return {"buffer": name, "tokens": len(buffer.tokens), "held": buffer.held}

    def release(self, name: str) -> None:
        """Delete a buffer. Raises ApiError if no buffer has this name."""
        buffer = self._kept.pop(name, None)
        if buffer is None:
            raise bad_request(
                "buffer", f"buffer: this session has no buffer {name!r}", "no_such_buffer"
            )
        buffer.release_hold()
        self._drop_number(name)

    def close(self) -> None:
        """Delete all buffers when the session ends, and store no new ones."""
        self._closed = True
        for buffer in self._kept.values():
            buffer.release_hold()
        self._kept.clear()
