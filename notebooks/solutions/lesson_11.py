"""Lesson 11: what waits for one reader, bounded, so that nobody else waits for that reader."""

import asyncio


class Outbox:
    """One slot that grows while the reader is busy, and an event that wakes the reader."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._text = ""
        self._reason: str | None = None
        self._ready = asyncio.Event()

    def put(self, text: str) -> bool:
        """Add text if it fits beside what still waits; answers at once."""
        if len((self._text + text).encode()) > self._limit:
            return False
        self._text += text
        self._ready.set()
        return True

    def close(self, reason: str) -> None:
        """Say that nothing more comes, and why; the first word on that counts."""
        if self._reason is None:
            self._reason = reason
        self._ready.set()

    async def get(self) -> tuple[str, str | None]:
        """Everything that waits, and the reason if that was all."""
        await self._ready.wait()
        text, self._text = self._text, ""
        if self._reason is None:
            self._ready.clear()
        return text, self._reason
