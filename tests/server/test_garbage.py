"""The garbage collector runs after the last request has ended, and never while one waits."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from server.core import garbage


class Knot:
    """Only the collector frees it: it holds itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def nothing_is_collected_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "IDLE_SECONDS", 0)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def _knot_after(collector: garbage.IdleGarbageCollector, *, another_comes: bool) -> bool:
    """Whether a knot is still there once the last request has left."""
    knot = weakref.ref(Knot())
    collector.on_busy()
    collector.on_idle()
    if another_comes:
        collector.on_busy()
    for _ in range(3):  # turns of the loop
        await asyncio.sleep(0)
    return knot() is not None


def test_cycles_are_freed_when_the_last_request_has_left() -> None:
    assert not asyncio.run(_knot_after(garbage.IdleGarbageCollector(), another_comes=False))


def test_nothing_is_looked_through_while_another_request_is_in() -> None:
    assert asyncio.run(_knot_after(garbage.IdleGarbageCollector(), another_comes=True))


def test_an_idle_server_is_waited_for_while_a_request_is_in_and_not_before() -> None:
    async def waits() -> list[bool]:
        collector = garbage.IdleGarbageCollector()
        await collector.wait_idle()  # no request has come yet
        collector.on_busy()
        waiting = asyncio.create_task(collector.wait_idle())
        await asyncio.sleep(0)
        before = waiting.done()
        collector.on_idle()
        await waiting
        collector.on_busy()
        return [before, waiting.done()]

    assert asyncio.run(waits()) == [False, True]
