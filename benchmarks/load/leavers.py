"""Clients that disconnect at random moments, in three ways, streaming and not: nothing may leak.

/health gives blocks and requests. Leaked tasks are counted from outside: a leaked handler keeps its
connection's socket open, and /proc lists the server process's sockets.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

from benchmarks.load.streams import prompts
from server.load.client import ask, begin

WAYS = ("close", "reset", "half-close")
BODIES: tuple[dict[str, Any], ...] = ({}, {"stream": True, "n": 2}, {"stream": False})


async def _leaver(url: str, number: int, dice: random.Random, seconds: float) -> None:
    body = {"prompt": prompts(number + 1)[-1], "max_tokens": 200} | BODIES[number % len(BODIES)]
    call = await begin(url, "/v1/completions", body, X_Client=f"leaver-{number}")
    await asyncio.sleep(dice.uniform(0, seconds))
    call.leave(WAYS[dice.randrange(len(WAYS))])
    await call.ended


async def measure(  # noqa: PLR0917
    url: str, pid: int, count: int = 1000, at_once: int = 100, seconds: float = 0.5, seed: int = 0
) -> dict[str, Any]:
    """Leaked blocks (`held`), requests (`live`) and `sockets`: all must be 0."""
    body = {"prompt": "The next request", "max_tokens": 8}
    before = await ask(url, "/v1/completions", body)
    sockets = open_sockets(pid)
    dice, gate = random.Random(seed), asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with gate:
            await _leaver(url, number, dice, seconds)

    await asyncio.gather(*(one(number) for number in range(count)))
    after = await ask(url, "/v1/completions", body)
    health = (await ask(url, "/health")).json()
    blocks = health["blocks"]
    return {
        "leavers": count,
        "held": blocks["total"] - blocks["free"] - blocks["cached"],
        "live": sum(
            health[state] for state in ("waiting", "prefilling", "active", "pending_submit")
        ),
        "sockets": open_sockets(pid) - sockets,
        "next_is_unaffected": [id_ for _, id_ in after.tokens()]
        == [id_ for _, id_ in before.tokens()],
    }


def open_sockets(pid: int) -> int:
    """Count a process's sockets; Linux only."""
    links = Path(f"/proc/{pid}/fd").iterdir()
    return sum(str(link.readlink()).startswith("socket:") for link in links if link.is_symlink())
