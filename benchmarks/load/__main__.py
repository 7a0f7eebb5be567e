"""python -m benchmarks.load [NAME ...]: measure a server under load and print JSON lines."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.load import (
    faults,
    gateway,
    grammars,
    leavers,
    overload,
    slow_readers,
    streams,
    throughput,
)
from server.process import BackgroundServer, serve_in_background

ROOM = {"max_kv_tokens": 65_536, "token_budget": 512}


def _serving(
    work: Callable[[BackgroundServer], Awaitable[dict[str, Any]]], **options: Any
) -> dict[str, Any]:
    with serve_in_background(**options) as server:
        return asyncio.run(work(server))  # type: ignore[arg-type]


def _throughput(count: int, max_tokens: int, rounds: int) -> dict[str, Any]:
    settings = {"max_batch_size": 64} | ROOM
    options = settings | {"max_waiting": count}
    with (
        serve_in_background(**options) as two,
        serve_in_background(**options, one_process=True) as one,
    ):
        urls = {"two processes": two.url, "one process": one.url}
        return asyncio.run(throughput.measure(urls, settings, count, max_tokens, rounds))


WORKS: dict[str, Callable[[], dict[str, Any]]] = {
    "streams": lambda: _serving(
        lambda server: streams.measure(server.url), max_batch_size=64, max_waiting=1000, **ROOM
    ),
    "throughput": lambda: _throughput(64, max_tokens=64, rounds=15),
    "throughput_longer": lambda: _throughput(64, max_tokens=256, rounds=7),
    "throughput_queued": lambda: _throughput(256, max_tokens=64, rounds=7),
    "overload": lambda: _serving(
        lambda server: overload.measure(server.url), max_batch_size=32, max_waiting=32, **ROOM
    ),
    "leavers": lambda: _serving(
        lambda server: leavers.measure(server.url, server.process.pid), max_batch_size=32, **ROOM
    ),
    "grammars": lambda: _serving(lambda server: grammars.measure(server.url)),
    "slow_readers": lambda: _serving(
        lambda server: slow_readers.measure(server.url), max_batch_size=160, **ROOM
    ),
    "faults": faults.measure,
    "gateway_overhead": gateway.overhead,
    "gateway_scaling": gateway.scaling,
    "gateway_equal": gateway.equal,
    "gateway_killed": gateway.killed,
    "gateway_drained": gateway.drained,
    "gateway_leaving": gateway.leaving,
}


def main() -> None:
    """Run the works named on the command line, or all."""
    names = sys.argv[1:] or list(WORKS)
    unknown = [name for name in names if name not in WORKS]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(WORKS)}")
    for name in names:
        print(json.dumps({name: WORKS[name]()}), flush=True)


if __name__ == "__main__":
    main()
