"""The bridge alone, in the test's own event loop: a request that leaves gives everything back."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from engine.events.vocabulary import RequestArrived, RequestFinished
from server.core.bridge import Bridge
from server.core.request_stream import RequestStream
from tests.server.bridges import order, read, running
from tests.server.facts import raises_api_error


async def until(bridge: Bridge, wanted: Callable[[], bool]) -> None:
    while not wanted():
        assert await bridge.window.changed(30)


def finished(bridge: Bridge) -> list[tuple[int, str]]:
    events = bridge.window.since(0)
    return [(e.request, e.reason) for e in events if isinstance(e, RequestFinished)]


async def test_prompts_of_one_request_are_neighbours_and_choices_keep_their_order() -> None:
    async with running() as bridge, bridge.generate(order("a", "b", "c")) as generation:
        assert generation.request_ids == [1, 2, 3]
        assert await read(generation) == dict.fromkeys(range(3), "abcdefgh")


async def test_requests_reach_the_queue_in_the_order_in_which_they_were_asked() -> None:
    async def ask(label: str) -> None:
        async with bridge.generate(order("x", label=label)):
            pass

    async with running() as bridge:
        labels = [f"r{number}" for number in range(40)]
        await asyncio.gather(*(ask(label) for label in labels))
        events = bridge.window.since(0)
        assert [e.label for e in events if isinstance(e, RequestArrived)] == labels


async def raises(_generation: RequestStream) -> None:
    raise ZeroDivisionError


async def is_cancelled(_generation: RequestStream) -> None:
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


@pytest.mark.parametrize("leave", [raises, is_cancelled])
async def test_a_handler_that_fails_in_whatever_way_ends_its_request(
    leave: Callable[[RequestStream], Awaitable[None]],
) -> None:
    async def handler(bridge: Bridge) -> None:
        async with bridge.generate(order("a", "b", max_tokens=1000)) as generation:
            await leave(generation)

    async with running() as bridge:
        await bridge.pause()
        await asyncio.gather(asyncio.create_task(handler(bridge)), return_exceptions=True)
        await until(bridge, lambda: len(finished(bridge)) == 2)
        assert finished(bridge) == [(1, "abort"), (2, "abort")]
        assert not bridge.window.state.requests


async def test_what_prepare_raises_leaves_nothing_behind() -> None:
    async with running() as bridge:
        fields = {"max_tokens": "m"}
        with raises_api_error(400, "context_length_exceeded", "max_tokens", param="m"):
            async with bridge.generate(order("x", max_tokens=10**6, fields=fields)):
                pass
        assert bridge.pending_submit == 0
        await bridge.drain()  # returns at once: no request is live
