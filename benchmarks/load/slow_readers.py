"""Clients that read slowly or not at all, and their effect on fast readers.

The unread data of slow readers waits in the kernel: some 420 bytes per token, 148 KB after all 400,
which the connection's send buffer still takes (measured). So the server cannot distinguish them
from readers, and their requests take seats in the batch like others. Therefore the fast ones are
measured three times: alone, with companions that ask for the same and read it, and with companions
that do not.

    slow_over_alone     includes the cost of 100 more requests in the batch, however they are read
    slow_over_readers   what reading slowly costs the others
"""

import asyncio
from typing import Any

from benchmarks.load.streams import fire, latencies
from engine.simulation.quantile import quantile
from server.load.client import Call, Reply, begin

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
    """Half of them read a little ten times a second, the others nothing at all."""
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
    """Measure the fast readers."""
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
    itl: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(rounds):
        for name, (companions, slowly) in settings.items():
            replies = await beside(url, fast, companions, slow=slowly, max_tokens=max_tokens)
            itl[name].append(latencies(replies)["itl_p99_ms"])
    figures = {f"itl_p99_ms_{name}": round(quantile(one, 0.5), 2) for name, one in itl.items()}
    for other in ("alone", "beside_readers"):
        ratios = [s / o for s, o in zip(itl["beside_slow"], itl[other], strict=True)]
        figures[f"slow_over_{other.removeprefix('beside_')}"] = round(quantile(ratios, 0.5), 3)
    return figures | {"rounds": rounds}
