"""LMTP's frames, and the bounded queue in which they wait to be sent.

A frame is a word, a space and JSON:
    client   GENERATE {"stream_id": 1, "prompt": [791, 264], "max_tokens": 8}
    server   TOKEN [{"stream_id": 1, "token": 311, "logprob": -0.2, "finish_reason": null, ...}]

The server always sends a list, because one frame may carry several tokens. LMQL's own client
(`lmql/models/lmtp/lmtp_client.py`) accepts nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import msgspec

LIMIT_BYTES = 64 << 10
FRAME_BYTES = 256 << 10  # aiohttp, which LMQL uses, accepts 4 MiB

# Sent instead of minus infinity, which JSON lacks. msgspec would write null, but LMQL sorts
# log-probabilities and needs numbers.
MIN_LOGPROB = -1e30

_encode = msgspec.json.Encoder().encode


class FrameError(ValueError):
    """A frame is malformed. The message says what is wrong with it."""


def frame(word: str, content: object) -> str:
    """Return a whole frame."""
    return f"{word} {_encode(content).decode()}"


def list_frame(word: str, items: Iterable[bytes]) -> str:
    """Return a frame of items that are already encoded."""
    return f"{word} [{b','.join(items).decode()}]"


def item(content: object) -> bytes:
    """Encode one item of a TOKEN or MSG frame."""
    return _encode(content)


def split(text: str) -> tuple[str, str]:
    """Return a frame's word and its unparsed JSON. Raises FrameError if either is missing."""
    word, space, content = text.partition(" ")
    if not space or not word.isascii() or not word.isupper():
        raise FrameError("a frame is a word in capitals, a space and JSON: GENERATE {...}")
    return word, content


def items_of(content: str) -> list[dict[str, Any]]:
    """Parse the items of a TOKEN or MSG frame. Raises FrameError for anything else."""
    try:
        return msgspec.json.decode(content, type=list[dict[str, Any]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise FrameError(str(error)) from error


class SendQueue:
    """A bounded queue of items for one client; sends them in order, several per frame.

        streams --put--> waiting items --run--> one frame per word, as fast as the client reads

    A client that reads slowly gets fewer, longer frames. When more than `LIMIT_BYTES` are queued,
    streams wait, and each fills its own bounded buffer (`server/core/request_stream.py`). A client that
    accepts nothing for `stall_seconds` is disconnected.

    `send` takes a frame and returns when the connection has accepted it.
    """

    def __init__(self, send: Callable[[str], Awaitable[None]], stall_seconds: float) -> None:
        self._send = send
        self._stall_seconds = stall_seconds
        self._items: list[tuple[str, bytes]] = []
        self._bytes = 0
        self._filled = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def put(self, word: str, items: list[bytes]) -> None:
        """Add items of a TOKEN or MSG frame; wait while the queue is full."""
        await self._has_room.wait()
        self._items += [(word, one) for one in items]
        self._bytes += sum(map(len, items))
        self._filled.set()
        if self._bytes > LIMIT_BYTES:
            self._has_room.clear()

    async def run(self) -> None:
        """Send queued items until cancelled. Raises TimeoutError if the client accepts nothing."""
        while True:
            await self._filled.wait()
            items, self._items, self._bytes = self._items, [], 0
            self._filled.clear()
            for text in _frames(items):
                async with asyncio.timeout(self._stall_seconds):
                    await self._send(text)
            if self._bytes <= LIMIT_BYTES:
                self._has_room.set()


def _frames(items: list[tuple[str, bytes]]) -> Iterator[str]:
    """Join consecutive items of the same word into frames of up to about `FRAME_BYTES`."""
    word, joined, size = "", list[bytes](), 0
    for next_word, one in items:
        if joined and (next_word != word or size > FRAME_BYTES):
            yield list_frame(word, joined)
            joined, size = [], 0
        word = next_word
        joined.append(one)
        size += len(one)
    if joined:
        yield list_frame(word, joined)
