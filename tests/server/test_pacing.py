"""Many streams are written to less often; the first token, the end and a lone stream never wait."""

import asyncio

from engine.scheduling.sampling_params import SamplingParams
from server.generation import Gain, Generation, Prompt
from server.pacing import Pace


def generation() -> Generation:
    one = Generation(0, 10_000, lambda _: None)
    one.queued([Prompt([1], SamplingParams(max_tokens=99))], [1])
    return one


async def taken(one: Generation) -> list[list[int]]:
    """The tokens of each turn of a handler that takes all there is."""
    turns = []
    while not one.finished:
        turns.append([id_ for gain in await one.gains(60) for id_ in gain.ids])
    return turns


def test_streams_that_gained_between_two_writes_get_it_in_one() -> None:
    async def test() -> None:
        pace, streams = Pace(), [generation() for _ in range(3)]
        readers = [asyncio.create_task(taken(one)) for one in streams]
        await asyncio.sleep(0)
        for token in range(6):
            for one in streams:
                one.put(
                    Gain(0, at=token, ids=[token], finish_reason="length" if token == 5 else None)
                )
            if token == 1:
                pace._not_before = (
                    asyncio.get_running_loop().time() + 3600
                )  # it was written just now
            pace.note(streams)
            for _ in range(3):  # what is to wake has woken then
                await asyncio.sleep(0)
        assert await asyncio.gather(*readers) == [[[0], [1, 2, 3, 4, 5]]] * 3

    asyncio.run(test())


def test_what_waits_is_written_when_it_is_time() -> None:
    async def test() -> None:
        pace, one = Pace(), generation()
        reader = asyncio.create_task(taken(one))
        for token in range(4):  # nobody notes the last: its end wakes by itself
            last = token == 3
            one.put(Gain(0, at=token, ids=[token], finish_reason="length" if last else None))
            pace.note([] if last else [one])
        assert [token for turn in await reader for token in turn] == [0, 1, 2, 3]
        another = generation()
        reading = asyncio.create_task(taken(another))
        await asyncio.sleep(0)
        another.put(Gain(0, at=0, ids=[0]))
        while another._gains:
            await asyncio.sleep(0)
        another.put(Gain(0, at=1, ids=[1]))
        pace.note([another])
        while another._gains:  # no step comes to push it out
            await asyncio.sleep(0)
        another.put(Gain(0, at=2, finish_reason="length"))
        assert await reading == [[0], [1], []]

    asyncio.run(test())


def test_a_wake_that_comes_too_late_hands_nothing_over() -> None:
    """A turn without a gain would be told to the client as silence, with a keep-alive."""

    async def test() -> None:
        one = generation()
        one.put(Gain(0, at=0, ids=[0]))
        one.put(Gain(0, at=1, ids=[1]))
        assert [gain.ids for gain in await one.gains(60)] == [[0, 1]]
        waiting = asyncio.create_task(one.gains(60))
        await asyncio.sleep(0)
        assert not one.wake()  # as a pace does whose time has come
        await asyncio.sleep(0)
        assert not waiting.done()
        one.put(Gain(0, at=2, ids=[2], finish_reason="length"))
        assert [gain.ids for gain in await waiting] == [[2]]

    asyncio.run(test())
