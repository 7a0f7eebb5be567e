"""A started server, real sockets, and clients that behave or do not: under load, and when it fails."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from benchmarks.load import faults, gateway, leavers, overload, slow_readers, streams
from server.process import BackgroundServer, serve_in_background

ROOM = {"max_kv_tokens": 65_536, "token_budget": 512}


def _serving(
    work: Callable[[BackgroundServer], Awaitable[dict[str, Any]]], **options: Any
) -> dict[str, Any]:
    with serve_in_background(**options) as server:
        return asyncio.run(work(server))  # type: ignore[arg-type]


WORKS: dict[str, Callable[[], dict[str, Any]]] = {
    "streams": lambda: _serving(
        lambda server: streams.measure(server.url), max_batch_size=64, max_waiting=1000, **ROOM
    ),
    "overload": lambda: _serving(
        lambda server: overload.measure(server.url), max_batch_size=32, max_waiting=32, **ROOM
    ),
    "leavers": lambda: _serving(
        lambda server: leavers.measure(server.url, server.process.pid), max_batch_size=32, **ROOM
    ),
    "slow_readers": lambda: _serving(
        lambda server: slow_readers.measure(server.url), max_batch_size=160, **ROOM
    ),
    "faults": faults.measure,
    "gateway_killed": gateway.killed,
}


def main(
    works: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(WORKS)}")] = None,
) -> None:
    """Run these works, or all, and print a line of JSON for each."""
    if unknown := set(works or ()) - WORKS.keys():
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(WORKS)}")
    for name in works or WORKS:
        print(json.dumps({name: WORKS[name]()}), flush=True)
