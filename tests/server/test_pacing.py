"""Many streams are written to less often; the first token, the end and a lone stream never wait."""

import asyncio

import pytest

from engine.scheduling.sampling_params import SamplingParams
from server.core import request_stream
from server.core.messages import OutputDelta, Prompt
from server.core.request_stream import RequestStream, StreamPacer
from tests.server.bridges import order, read, running


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


def turns(count: int, rest: float, monkeypatch: pytest.MonkeyPatch) -> list[list[list[int]]]:
    monkeypatch.setattr(request_stream, "SECONDS_PER_STREAM", rest)
    monkeypatch.setattr(request_stream, "MAX_REST", 3600)

    async def test() -> list[list[list[int]]]:
        pacer, streams = StreamPacer(lambda: None), [generation() for _ in range(count)]
        readers = [asyncio.create_task(taken(one)) for one in streams]
        await asyncio.sleep(0)
        await write(pacer, streams, range(6), last=5)
        return await asyncio.gather(*readers)

    return asyncio.run(test())


def test_streams_that_gained_between_two_writes_get_it_in_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert turns(3, 3600, monkeypatch) == [[[0], [1, 2, 3, 4, 5]]] * 3


def test_a_handful_get_each_token_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert turns(3, request_stream.SECONDS_PER_STREAM, monkeypatch) == [[[n] for n in range(6)]] * 3


async def test_after_a_rest_what_the_engine_handed_over_meanwhile_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_stream, "MIN_REST", 0)

    one = generation()
    handed_over = [OutputDelta(0, at=2, ids=[2])]

    def look() -> None:
        while handed_over:
            one.put(handed_over.pop())
            pacer.add([one])

    pacer = StreamPacer(look)
    reader = asyncio.create_task(taken(one))
    await asyncio.sleep(0)
    await write(pacer, [one], range(2), last=9)
    while handed_over or one._deltas:  # no step comes to push it out
        await asyncio.sleep(0)
    one.put(OutputDelta(0, at=3, finish_reason="length"))
    assert [token for turn in await reader for token in turn] == [0, 1, 2]


async def test_first_tokens_ends_and_replies_do_not_wait_for_a_rest_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_stream, "MIN_REST", 0)
    monkeypatch.setattr(request_stream, "SECONDS_PER_STREAM", 3600)
    monkeypatch.setattr(request_stream, "MAX_REST", 3600)

    async with running() as bridge:
        await bridge.pause()  # so that the rest begins with the first step, however fast they are
        async with bridge.generate(order("a", max_tokens=2000)) as long:
            reader = asyncio.create_task(long.deltas(60))
            await asyncio.sleep(0)
            await bridge.step(1)
            assert await reader
            assert bridge._pacer.resting
            await bridge.resume()
            async with bridge.generate(order("b")) as short:
                assert await read(short) == {0: "abcdefgh"}
            step = await bridge.pause()
            async with bridge.generate(order("c")):  # by now the long one may have ended
                assert await bridge.step(3) == step + 3


async def test_a_wake_that_comes_too_late_hands_nothing_over() -> None:
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
