"""A gateway over servers of this machine."""

import asyncio
import sys

from server.load.client import ask
from server.process import BackgroundServer


def serve_over(servers: list[BackgroundServer], *options: str) -> BackgroundServer:
    """Start a gateway over servers, and wait until it has reached all of them."""
    command = [sys.executable, "-m", "underglass", "serve", "--port", "0", "--until-stdin-closes"]
    command += [*options, *(part for one in servers for part in ("--replica", one.url))]
    gateway = BackgroundServer(command)
    asyncio.run(_wait_for_all(gateway.url, len(servers)))
    return gateway


async def _wait_for_all(url: str, count: int) -> None:
    async with asyncio.timeout(30):
        while len((await ask(url, "/health")).json()["replicas"]) < count:
            await asyncio.sleep(0.05)
