"""The in-process transport: an engine of one's own, lent to a thread while the block runs."""

import asyncio

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events.vocabulary import RequestArrived, RequestFinished
from engine.scheduling.sampling_params import SamplingParams
from server.api.lmtp import session
from server.api.lmtp.client import StreamError
from server.api.lmtp.inprocess import in_process
from tests.server.app_under_test import TOKENIZER, AlphabetRunner

ENDLESS = 1 << 20  # tokens: no machine is so slow to abort a request that it could finish them


def alphabet() -> Engine:
    config = EngineConfig(block_size=64, max_kv_tokens=2 * ENDLESS)
    return Engine(AlphabetRunner(None), config, tokenizer=TOKENIZER)


def test_the_engine_is_its_owners_again_afterwards() -> None:
    """Whatever was still running is over, and the log holds all that happened."""
    engine = alphabet()
    log = engine.log
    before = engine.complete(["x"], SamplingParams(max_tokens=2))

    async def run() -> list[str]:
        async with in_process(engine, label="Ada") as client:
            kept = [one["text"] async for one in client.generate("yy", max_tokens=3, keep="k")]
            unread = client.generate("z", max_tokens=ENDLESS)
            await anext(unread)
            return kept

    assert asyncio.run(run()) == ["a", "b", "c"]
    assert engine.log is log
    assert not engine.requests
    assert not engine.holds.live
    assert log.state().core() == engine.snapshot()
    assert [one.label for one in log.of(RequestArrived)] == ["", "Ada", "Ada"]
    assert [one.reason for one in log.of(RequestFinished)] == ["length", "length", "abort"]
    after = engine.complete(["x"], SamplingParams(max_tokens=2))
    assert after[0].text == before[0].text


def test_streams_run_at_the_same_time() -> None:
    async def run() -> list[str]:
        async with in_process(alphabet()) as client:

            async def one(count: int) -> str:
                return "".join([t["text"] async for t in client.generate("x", max_tokens=count)])

            return await asyncio.gather(*(one(count) for count in range(1, 30)))

    texts = asyncio.run(run())
    assert texts == ["abcdefghijklmnopqrstuvwxyzabc"[:count] for count in range(1, 30)]


def test_a_client_that_stops_reading_early_ends_the_stream() -> None:
    engine = alphabet()

    async def run() -> None:
        async with in_process(engine) as client:
            async for one in client.generate("x", max_tokens=ENDLESS):
                if one["text"] == "e":
                    break
            assert [one["text"] async for one in client.generate("y", max_tokens=1)] == ["a"]

    asyncio.run(run())
    assert [one.reason for one in engine.log.of(RequestFinished)].count("abort") == 1


async def test_an_error_says_whether_trying_again_helps() -> None:
    async with in_process(alphabet()) as client:
        with pytest.raises(StreamError, match="max_tokens") as wrong:
            await anext(client.generate("x", max_tokens=0))
        with pytest.raises(StreamError, match="told to fail") as failed:
            async for _ in client.generate("x", user="fail-after-1"):
                pass
        assert (wrong.value.retry, failed.value.retry) == (False, True)
        assert failed.value.code == "forward_pass_failed"


def test_a_failing_callback_raises_its_error_in_the_client() -> None:
    def fails(_message: object) -> None:
        raise ZeroDivisionError

    async def run() -> None:
        async with in_process(alphabet()) as client:
            client.on_message = fails
            await anext(client.generate("x"))

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())


def test_a_session_that_fails_ends_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_text: str) -> None:
        raise ZeroDivisionError

    async def run() -> None:
        async with in_process(alphabet()) as client:
            await anext(client.generate("x"))

    monkeypatch.setattr(session, "split", fails)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
