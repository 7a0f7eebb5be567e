"""The bridge alone, in the test's own event loop: a request that leaves gives everything back."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import pytest
from starlette.types import Message

from engine.core.log.vocabulary import RequestArrived, RequestFinished
from engine.core.request import TokenScore
from engine.core.sampling_params import SamplingParams
from server.core import bridge as bridge_module
from server.core import request_stream
from server.core.bridge import Bridge
from server.core.commands import Logprobs, OutputDelta, Prompt
from server.core.models import Models
from server.core.request_stream import RequestContext, RequestStream, StreamPacer
from server.http.streaming import Answer, Connection
from tests.server.bridges import order, read, running
from tests.server.facts import raises_api_error


async def until(bridge: Bridge, wanted: Callable[[], bool]) -> None:
    while not wanted():
        assert await bridge.window.changed(30)


def finished(bridge: Bridge) -> list[tuple[int, str]]:
    events = bridge.window.since(0)
    return [(e.request, e.reason) for e in events if isinstance(e, RequestFinished)]


async def test_requests_reach_the_queue_in_the_order_in_which_they_were_asked():
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
async def test_a_handler_that_fails_in_whatever_way_ends_its_request(leave):
    async def handler(bridge: Bridge) -> None:
        async with bridge.generate(order("a", "b", max_tokens=1000)) as generation:
            await leave(generation)

    async with running() as bridge:
        await bridge.classroom.pause()
        await asyncio.gather(asyncio.create_task(handler(bridge)), return_exceptions=True)
        await until(bridge, lambda: len(finished(bridge)) == 2)
        assert finished(bridge) == [(1, "abort"), (2, "abort")]
        assert not bridge.window.state.requests


async def test_what_prepare_raises_leaves_nothing_behind():
    async with running() as bridge:
        fields = {"max_tokens": "m"}
        with raises_api_error(400, "context_length_exceeded", "max_tokens", param="m"):
            async with bridge.generate(order("x", max_tokens=10**6, fields=fields)):
                pass
        assert bridge.pending_submit == 0
        await bridge.drain()  # returns at once: no request is live


# The garbage collector runs after the last request has ended, and never while one waits


class Knot:
    """Only the collector frees it: it holds itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def nothing_is_collected_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(bridge_module, "COLLECT_AFTER_SECONDS", 0)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def _knot_after(*, another_comes: bool) -> bool:
    """Whether a knot is still there once the last request has left."""
    async with running() as bridge, AsyncExitStack() as others:
        await bridge.classroom.pause()
        async with bridge.generate(order("a")):
            knot = weakref.ref(Knot())
        if another_comes:
            await others.enter_async_context(bridge.generate(order("b")))
        for _ in range(3):  # turns of the loop
            await asyncio.sleep(0)
        return knot() is not None


@pytest.mark.usefixtures("nothing_is_collected_by_itself")
def test_cycles_are_freed_when_the_last_request_has_left_and_not_while_another_is_in():
    for another_comes in (False, True):
        assert asyncio.run(_knot_after(another_comes=another_comes)) is another_comes


@pytest.mark.usefixtures("nothing_is_collected_by_itself")
async def test_an_idle_server_is_waited_for_while_a_request_is_in_and_not_before():
    async with running() as idle:
        await idle.drain()  # no request has come yet
    async with running() as busy:
        await busy.classroom.pause()
        async with busy.generate(order("a", max_tokens=2000)):
            draining = asyncio.create_task(busy.drain())
            await asyncio.sleep(0)
            before = draining.done()
        await draining
        assert (before, draining.done()) == (False, True)


# Many streams are written to less often; the first token, the end and a lone stream never wait


def generation() -> RequestStream:
    one = RequestStream(0, 10_000, lambda: None)
    one.queued([Prompt([1], SamplingParams(max_tokens=99))], [1])
    return one


async def taken(one: RequestStream) -> list[list[int]]:
    """The tokens of each turn of a handler that takes all there is."""
    turns = []
    while not one.finished:
        turns.append([id_ for gain in await one.deltas(60) for id_ in gain.ids])
    return turns


async def write(pacer: StreamPacer, streams: list[RequestStream], tokens: range, last: int) -> None:
    for token in tokens:
        for one in streams:
            one.put(
                OutputDelta(
                    0, at=token, ids=[token], finish_reason="length" if token == last else None
                )
            )
        pacer.add(streams)
        for _ in range(3):  # by then, everything due has woken
            await asyncio.sleep(0)


async def test_many_streams_get_what_they_gained_in_one_write_and_a_handful_each_token_by_itself(
    monkeypatch,
):
    monkeypatch.setattr(request_stream, "MAX_REST", 3600)
    at_once = [[0], [1, 2, 3, 4, 5]]
    by_itself = [[number] for number in range(6)]
    for rest, expected in ((request_stream.SECONDS_PER_STREAM, by_itself), (3600, at_once)):
        monkeypatch.setattr(request_stream, "SECONDS_PER_STREAM", rest)
        pacer, streams = StreamPacer(lambda: None), [generation() for _ in range(3)]
        readers = [asyncio.create_task(taken(one)) for one in streams]
        await asyncio.sleep(0)
        await write(pacer, streams, range(6), last=5)
        assert await asyncio.gather(*readers) == [expected] * 3


async def test_after_a_rest_what_the_engine_handed_over_meanwhile_is_written(monkeypatch):
    for name in ("SECONDS_PER_STREAM", "MAX_REST"):  # the test ends the rest, no timer does
        monkeypatch.setattr(request_stream, name, 3600)

    one = generation()
    handed_over = [OutputDelta(0, at=2, ids=[2])]

    def look() -> None:
        one.put(handed_over.pop())
        pacer.add([one])

    pacer = StreamPacer(look)
    reader = asyncio.create_task(taken(one))
    await asyncio.sleep(0)
    await write(pacer, [one], range(2), last=9)
    pacer._end_rest()
    while one._deltas:  # no step comes to push it out
        await asyncio.sleep(0)
    one.put(OutputDelta(0, at=3, finish_reason="length"))
    assert [token for turn in await reader for token in turn] == [0, 1, 2]


async def test_first_tokens_ends_and_replies_do_not_wait_for_a_rest_to_end(monkeypatch):
    monkeypatch.setattr(request_stream, "MIN_REST", 0)
    monkeypatch.setattr(request_stream, "SECONDS_PER_STREAM", 3600)
    monkeypatch.setattr(request_stream, "MAX_REST", 3600)

    async with running() as bridge:
        await (
            bridge.classroom.pause()
        )  # so that the rest begins with the first step, however fast they are
        async with bridge.generate(order("a", max_tokens=2000)) as long:
            reader = asyncio.create_task(long.deltas(60))
            await asyncio.sleep(0)
            await bridge.classroom.step(1)
            assert await reader
            assert bridge._pacer.resting
            await bridge.classroom.resume()
            async with bridge.generate(order("b")) as short:
                assert await read(short) == {0: "abcdefgh"}
            step = await bridge.classroom.pause()
            async with bridge.generate(order("c")):  # by now the long one may have ended
                assert await bridge.classroom.step(3) == step + 3


async def test_a_wake_that_comes_too_late_hands_nothing_over():
    """A turn without a delta would look like silence, and the client would get a keep-alive."""

    one = generation()
    one.put(OutputDelta(0, at=0, ids=[0]))
    one.put(OutputDelta(0, at=1, ids=[1]))
    assert [gain.ids for gain in await one.deltas(60)] == [[0, 1]]
    waiting = asyncio.create_task(one.deltas(60))
    await asyncio.sleep(0)
    assert not one.wake()  # as the pacer does when its rest ends
    await asyncio.sleep(0)
    assert not waiting.done()
    one.put(OutputDelta(0, at=2, ids=[2], finish_reason="length"))
    assert [gain.ids for gain in await waiting] == [[2]]


def token_of(choice: int, token: int, *, forced: bool = False) -> OutputDelta:
    text = chr(token)
    logprobs = Logprobs([text], [-0.5], [[(token, -0.5), (1, -2.0)]], [forced])
    return OutputDelta(choice, at=token, ids=[token], texts=[text], logprobs=logprobs)


def buffered(buffer_bytes: int = 10_000) -> RequestStream:
    one = RequestStream(0, buffer_bytes, lambda: None)
    one.queued([Prompt([1, 2], SamplingParams(n=2, logprobs=2))], [1])
    return one


def test_steps_that_wait_are_merged_per_choice_with_their_logprobs():
    one = buffered()
    first = token_of(0, 97)
    first.prompt_scores = [TokenScore(-1.0, [])]
    for gain in (first, token_of(1, 98), token_of(0, 99, forced=True), token_of(1, 100)):
        one.put(gain)
    one.put(OutputDelta(0, at=101, finish_reason="abort"))  # an end that brings no token
    zero, other = asyncio.run(one.deltas(1))
    assert (zero.ids, zero.texts, zero.finish_reason) == ([97, 99], ["a", "c"], "abort")
    assert zero.logprobs == Logprobs(
        ["a", "c"], [-0.5, -0.5], [[(97, -0.5), (1, -2.0)], [(99, -0.5), (1, -2.0)]], [False, True]
    )
    assert zero.prompt_scores == [TokenScore(-1.0, [])]
    assert (other.ids, other.logprobs.pieces) == ([98, 100], ["b", "d"])


async def test_a_reader_is_not_cut_off_because_the_loop_was_held_up():
    async with (
        running(buffer_bytes=20_000) as bridge,
        bridge.generate(order("a", max_tokens=1000)) as stream,
    ):
        while bridge.client.engine.requests:  # type: ignore[attr-defined]
            pass  # the loop stands still, and the engine computes all tokens
        assert len((await read(stream))[0]) == 1000


# An answer is sent in few writes, because each of them stops the engine for a moment


SCOPE = {"type": "http", "headers": [], "state": {"context": RequestContext(lambda _stream: None)}}


async def test_a_cancelled_answer_is_cancelled_also_while_it_cleans_up():
    started, cleaning, clean = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class SlowToEnd(Answer):
        async def _send_stream(
            self, bridge: Bridge, generation: RequestStream, connection: Connection
        ) -> None:
            started.set()
            try:
                await asyncio.Future()
            finally:
                cleaning.set()
                await clean.wait()

    async def receive() -> Message:
        await started.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pytest.fail(f"nothing should be sent: {message}")

    async with running() as bridge:
        answering = asyncio.create_task(
            SlowToEnd(Models(bridge), None, order("x"), None, streamed=True)(SCOPE, receive, send)
        )
        await cleaning.wait()
        answering.cancel()
        await asyncio.wait({answering})
        clean.set()
    assert answering.cancelled()
