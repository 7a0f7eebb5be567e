"""A gateway whose replica dies: what is lost, and for how long.

The replicas are servers of this machine, one engine thread each; the gateway is over their addresses.
"""

import asyncio
import os
import signal
import sys
import time
from contextlib import ExitStack
from typing import Any

from server.load.client import Reply, ask, begin
from server.process import BackgroundServer, serve_in_background

ROOM = {"max_kv_tokens": 65_536, "token_budget": 512, "max_waiting": 1000, "max_batch_size": 64}


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


def ended(replies: list[Reply]) -> dict[str, Any]:
    """How streams ended."""
    lost = [reply for reply in replies if reply.error == "replica_lost"]
    return {
        "streams": len(replies),
        "complete": sum(reply.complete for reply in replies),
        "replica_lost": len(lost),
        "other": sum(not reply.complete and reply.error != "replica_lost" for reply in replies),
    }


async def _killed(gateway: str, victim: int, count: int) -> dict[str, Any]:
    body = {"max_tokens": 200, "ignore_eos": True}
    calls = [
        await begin(gateway, "/v1/completions", body | {"prompt": f"Killed {number}"})
        for number in range(count)
    ]
    while sum(bool(call.reply.tokens()) for call in calls) < count // 4:
        await asyncio.sleep(0.01)
    os.kill(victim, signal.SIGKILL)
    began = time.perf_counter()
    later = [
        asyncio.create_task(ask(gateway, "/v1/completions", {"prompt": "New", "max_tokens": 8}))
        for _ in range(10)
    ]
    async with asyncio.timeout(120):
        replies = [await call.ended for call in calls]
        new = await asyncio.gather(*later)
    trace = (await ask(gateway, "/trace")).raw
    return ended(replies) | {
        "moved": trace.count(b'"attempt":2'),
        "new_complete": sum(reply.complete for reply in new),
        "all_ended_after_s": round(time.perf_counter() - began, 1),
    }


def killed(count: int = 100) -> dict[str, Any]:
    """kill -9 of one of two replicas under streams: how each ended. None may hang."""
    with ExitStack() as stack:
        servers = [serve_in_background(threads=1, **ROOM) for _ in range(2)]
        for server in servers:
            stack.callback(server.stop)
        gateway = stack.enter_context(serve_over(servers))
        return asyncio.run(_killed(gateway.url, servers[0].process.pid, count))
