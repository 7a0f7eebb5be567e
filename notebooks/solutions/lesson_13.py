"""Lesson 13: a bounded buffer for one reader, so that no other reader waits for it."""

import asyncio


class Outbox:
    """One slot that grows while the reader is busy, and an event that wakes the reader."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._text = ""
        self._reason: str | None = None
        self._ready = asyncio.Event()

    def put(self, text: str) -> bool:
        """Add text if it fits; never waits."""
        if len((self._text + text).encode()) > self._limit:
            return False
        self._text += text
        self._ready.set()
        return True

    def close(self, reason: str) -> None:
        """End the stream with a reason; the first reason counts."""
        if self._reason is None:
            self._reason = reason
        self._ready.set()

    async def get(self) -> tuple[str, str | None]:
        """Return all buffered text, and the reason if nothing follows."""
        await self._ready.wait()
        text, self._text = self._text, ""
        if self._reason is None:
            self._ready.clear()
        return text, self._reason
