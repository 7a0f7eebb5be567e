"""Clients that read slowly, or not at all, beside those that read: what the others feel of them.

The slow ones ask for so much that it fits into no socket's buffer. Their requests take places in the
batch like anybody's, so the fast ones are measured three times: alone, beside companions that ask for
the same and read it, and beside those that do not. What reading slowly costs the others is the last
over the second.
"""

import asyncio
from typing import Any

from benchmarks.load.client import Call, Reply, begin, latencies, quantile
from benchmarks.load.streams import fire

_LONG = {"stream": True, "max_tokens": 400, "logprobs": 5, "ignore_eos": True}


async def _companions(url: str, count: int, *, slow: bool) -> list[Call]:
    calls = []
    for number in range(count):
        body = _LONG | {"prompt": f"Companion {number}"}
        call = await begin(url, "/v1/completions", body, receive_buffer=2048 if slow else 0)
        if slow:
            call.transport.pause_reading()
        calls.append(call)
    return calls


async def _trickle(calls: list[Call]) -> None:
    """Every second of them reads a little ten times a second, the others nothing at all."""
    while True:
        await asyncio.sleep(0.1)
        for call in calls[::2]:
            call.transport.resume_reading()
        await asyncio.sleep(0)
        for call in calls[::2]:
            if not call.ended.done():
                call.transport.pause_reading()


async def beside(
    url: str, fast: int, companions: int, *, slow: bool, max_tokens: int
) -> list[Reply]:
    """What the fast ones get."""
    calls = await _companions(url, companions, slow=slow)
    reading = asyncio.create_task(_trickle(calls if slow else []))
    replies = await fire(url, fast, max_tokens)
    reading.cancel()
    for call in calls:
        call.leave("reset")
    return replies


async def measure(
    url: str, fast: int = 50, slow: int = 100, max_tokens: int = 64, rounds: int = 5
) -> dict[str, Any]:
    """Medians over rounds of the fast ones' p99 ITL in ms, and their ratios."""
    settings = {"alone": (0, False), "beside_readers": (slow, False), "beside_slow": (slow, True)}
    times: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(rounds):
        for name, (companions, slowly) in settings.items():
            replies = await beside(url, fast, companions, slow=slowly, max_tokens=max_tokens)
            times[name].append(latencies(replies)["itl_p99_ms"])
    ratios = [s / r for s, r in zip(times["beside_slow"], times["beside_readers"], strict=True)]
    figures = {f"itl_p99_ms_{name}": round(quantile(one, 0.5), 2) for name, one in times.items()}
    return figures | {"slow_over_readers": round(quantile(ratios, 0.5), 3), "rounds": rounds}
