"""The garbage collector runs after the last request has ended, and never while one waits."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from server.core import bridge as bridge_module
from tests.server.bridges import order, running


class Knot:
    """Only the collector frees it: it holds itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def nothing_is_collected_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(bridge_module, "COLLECT_AFTER_SECONDS", 0)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def _knot_after(*, another_comes: bool) -> bool:
    """Whether a knot is still there once the last request has left."""
    async with running() as bridge, AsyncExitStack() as others:
        await bridge.pause()
        async with bridge.generate(order("a")):
            knot = weakref.ref(Knot())
        if another_comes:
            await others.enter_async_context(bridge.generate(order("b")))
        for _ in range(3):  # turns of the loop
            await asyncio.sleep(0)
        return knot() is not None


def test_cycles_are_freed_when_the_last_request_has_left() -> None:
    assert not asyncio.run(_knot_after(another_comes=False))


def test_nothing_is_looked_through_while_another_request_is_in() -> None:
    assert asyncio.run(_knot_after(another_comes=True))


async def test_an_idle_server_is_waited_for_while_a_request_is_in_and_not_before() -> None:
    async with running() as idle:
        await idle.drain()  # no request has come yet
    async with running() as busy:
        await busy.pause()
        async with busy.generate(order("a", max_tokens=2000)):
            draining = asyncio.create_task(busy.drain())
            await asyncio.sleep(0)
            before = draining.done()
        await draining
        assert (before, draining.done()) == (False, True)
