"""An open loop: each request starts at its scheduled time, whatever has been answered by then.

A closed loop has a fixed number of clients, and each waits for its answer before it asks again. When
the server is slow, such clients ask less, so they measure least when it matters most. Real users do
not know of each other. (Schroeder, Wierman and Harchol-Balter, "Open versus closed: a cautionary
tale", NSDI 2006.)
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def open_loop(
    times: Sequence[float],
    begin: Callable[[int], Awaitable[T]],
    *,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> tuple[float, list[T | BaseException]]:
    """Start request i at `times[i]` seconds; return when the run began, and what became of each.

    If the loop is behind, because this process was busy, it starts what is due at once; the scheduled
    times do not move. Cancelling it cancels all requests.
    """
    started = now()
    tasks = list[asyncio.Future[T]]()
    try:
        for index, at in enumerate(times):
            while (wait := started + at - now()) > 0:
                await sleep(wait)
            tasks.append(asyncio.ensure_future(begin(index)))
        return started, await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for task in tasks:
            task.cancel()
