"""Blocks of work that can be ended together: all that need a replica, or all that a drain waits for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Scopes:
    """Open blocks. asyncio ends a block from outside by a timeout that is set later."""

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
