"""Blocks of work that one call ends: all that run at a replica, or all that run in a drain."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Scopes:
    """Open blocks. A timeout that is set from outside is asyncio's own way to end a block."""

    def __init__(self) -> None:
        self._open: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def block(self) -> AsyncIterator[None]:
        """Run a block; `end` raises TimeoutError in it."""
        async with asyncio.timeout(None) as scope:
            self._open.add(scope)
            try:
                yield
            finally:
                self._open.discard(scope)

    def end(self) -> None:
        """Raise TimeoutError in every open block."""
        for scope in self._open:
            scope.reschedule(0)
