"""What waits to leave through one connection: in order, bounded, several tokens to a frame.

    streams --put--> waiting items --run--> one frame per kind, as fast as the client reads

A client that reads slowly gets fewer, longer frames. Once more than `LIMIT_BYTES` wait, streams wait
too, and the engine's side of each fills its own bounded buffer (`server/core/request_stream.py`). A
client that accepts nothing for `stall_seconds` is cut off.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from server.api.lmtp.wire import list_frame

LIMIT_BYTES = 64 << 10
FRAME_BYTES = 256 << 10  # aiohttp, which LMQL uses, takes 4 MiB


class Outlet:
    """The way out of one session. `send` takes a frame and returns when the connection took it."""

    def __init__(self, send: Callable[[str], Awaitable[None]], stall_seconds: float) -> None:
        self._send = send
        self._stall_seconds = stall_seconds
        self._items: list[tuple[str, bytes]] = []
        self._bytes = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, word: str, items: list[bytes]) -> None:
        """Add items of a TOKEN or MSG frame; waits while too much is on its way."""
        await self._room.wait()
        self._items += [(word, one) for one in items]
        self._bytes += sum(map(len, items))
        self._filled.set()
        if self._bytes > LIMIT_BYTES:
            self._room.clear()

    async def run(self) -> None:
        """Send what is put, for ever. Raises TimeoutError for a client that takes nothing."""
        while True:
            await self._filled.wait()
            items, self._items, self._bytes = self._items, [], 0
            self._filled.clear()
            for text in _frames(items):
                async with asyncio.timeout(self._stall_seconds):
                    await self._send(text)
            if self._bytes <= LIMIT_BYTES:
                self._room.set()


def _frames(items: list[tuple[str, bytes]]) -> Iterator[str]:
    """Items of one kind that follow each other share a frame, up to `FRAME_BYTES`."""
    word, together, size = "", list[bytes](), 0
    for kind, one in items:
        if together and (kind != word or size > FRAME_BYTES):
            yield list_frame(word, together)
            together, size = [], 0
        word = kind
        together.append(one)
        size += len(one)
    if together:
        yield list_frame(word, together)
