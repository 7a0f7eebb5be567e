"""A started server under load, over real sockets, with clients that behave or do not."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from benchmarks.harness import save
from benchmarks.load import leavers, overload, slow_readers, streams
from server.process import BackgroundServer, serve_in_background

ROOM = {"max_kv_tokens": 65_536, "token_budget": 512}


def _serving(
    work: Callable[[BackgroundServer], Awaitable[dict[str, Any]]], **options: Any
) -> dict[str, Any]:
    with serve_in_background(**options) as server:
        return asyncio.run(work(server))  # type: ignore[arg-type]


def _crowd(usual: int, scale: float) -> int:
    return max(4, round(usual * scale))


# Each work is given the size of its crowd, as a share of the usual one.
WORKS: dict[str, Callable[[float], dict[str, Any]]] = {
    "streams": lambda scale: _serving(
        lambda server: streams.measure(server.url, _crowd(500, scale)),
        max_batch_size=64,
        max_waiting=1000,
        **ROOM,
    ),
    "overload": lambda scale: _serving(
        lambda server: overload.measure(server.url, _crowd(640, scale)),
        max_batch_size=_crowd(32, scale),
        max_waiting=_crowd(32, scale),
        **ROOM,
    ),
    "leavers": lambda scale: _serving(
        lambda server: leavers.measure(server.url, server.process.pid, _crowd(1000, scale)),
        max_batch_size=32,
        **ROOM,
    ),
    "slow_readers": lambda scale: _serving(
        lambda server: slow_readers.measure(
            server.url, _crowd(50, scale), _crowd(100, scale), rounds=max(1, round(5 * scale))
        ),
        max_batch_size=160,
        **ROOM,
    ),
}


def main(
    works: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(WORKS)}")] = None,
    scale: Annotated[float, typer.Option(help="clients, as a share of the usual number")] = 1.0,
) -> None:
    """Run these works, or all, and print a line of JSON for each."""
    if unknown := set(works or ()) - WORKS.keys():
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(WORKS)}")
    figures: dict[str, Any] = {}
    for name in works or WORKS:
        figures[name] = WORKS[name](scale)
        print(json.dumps({name: figures[name]}), flush=True)
    save("load", figures)
