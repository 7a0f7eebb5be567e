"""The in-process transport: an engine of one's own, lent to a thread while the block runs."""

import asyncio
import json
from typing import Any

import pytest

from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.log.vocabulary import RequestArrived, RequestFinished
from engine.core.sampling_params import SamplingParams
from server.api.lmtp import session
from server.api.lmtp.client import Client, StreamError
from server.api.lmtp.frames import frame, split
from server.api.lmtp.inprocess import client_of, in_process
from server.api.lmtp.session import FRAME_BYTES, LIMIT_BYTES, SendQueue, Session
from tests.facts import assert_names
from tests.server.app_under_test import TOKENIZER, AlphabetRunner
from tests.server.shelf import Shelf, registry

ENDLESS = 1 << 20  # tokens: no machine is so slow to abort a request that it could finish them


def endless() -> Engine:
    """An engine with room for them."""
    config = EngineConfig(block_size=64, max_kv_tokens=2 * ENDLESS)
    return Engine(AlphabetRunner(None), config, tokenizer=TOKENIZER)


async def text(client: Client, prompt: str = "x", **fields: Any) -> str:
    return "".join([token["text"] async for token in client.generate(prompt, **fields)])


async def test_the_engine_is_its_owners_again_afterwards():
    """Whatever was still running is over, and the log holds all that happened."""
    engine = endless()
    log = engine.log
    before = engine.complete(["x"], SamplingParams(max_tokens=2))
    async with in_process(engine, label="Ada") as client:
        assert await text(client, prompt="yy", max_tokens=3, keep="k") == "abc"
        unread = client.generate("z", max_tokens=ENDLESS)
        await anext(unread)
    assert engine.log is log
    assert not engine.requests
    assert not engine.holds.live
    assert log.state().core() == engine.snapshot()
    assert [one.label for one in log.of(RequestArrived)] == ["", "Ada", "Ada"]
    assert [one.reason for one in log.of(RequestFinished)] == ["length", "length", "abort"]
    after = engine.complete(["x"], SamplingParams(max_tokens=2))
    assert after[0].text == before[0].text


async def test_a_client_that_stops_reading_early_ends_the_stream():
    engine = endless()
    async with in_process(engine) as client:
        async for one in client.generate("x", max_tokens=ENDLESS):
            if one["text"] == "e":
                break
        while engine.requests:
            await asyncio.sleep(0)
        assert await text(client, max_tokens=1) == "a"
    assert [one.reason for one in engine.log.of(RequestFinished)].count("abort") == 1


async def test_an_error_says_whether_trying_again_helps():
    async with in_process(endless()) as client:
        with pytest.raises(StreamError, match="max_tokens") as wrong:
            await anext(client.generate("x", max_tokens=0))
        with pytest.raises(StreamError, match="told to fail") as failed:
            async for _ in client.generate("x", user="fail-after-1"):
                pass
        assert (wrong.value.retry, failed.value.retry) == (False, True)
        assert failed.value.code == "forward_pass_failed"


@pytest.mark.parametrize("part", ["callback", "session"])
async def test_an_error_in_a_callback_or_in_the_session_is_raised_in_the_client(part, monkeypatch):
    def fails(_text: object) -> None:
        raise ZeroDivisionError

    if part == "session":
        monkeypatch.setattr(session, "split", fails)
    with pytest.raises(ZeroDivisionError):
        async with in_process(endless()) as client:
            if part == "callback":
                client.on_message = fails
            await anext(client.generate("x"))


async def test_a_stream_reports_that_its_model_is_loading_while_others_run(shelf):
    async with registry(shelf) as models, client_of(models) as client:
        messages: list[dict[str, Any]] = []
        client.on_message = messages.append
        shelf.gate.clear()
        waiting = asyncio.create_task(text(client, model="a", max_tokens=2))
        info = asyncio.create_task(client.model_info("a"))
        assert await text(client, max_tokens=3) == "abc"
        assert [one["model"] for one in messages if one.get("status") == "loading"] == ["a"] * 2
        shelf.gate.set()
        assert await waiting == "ab"
        assert (await info)["model"] == "a"
        messages.clear()
        assert await text(client, model="a", max_tokens=1) == "a"
        assert [one["status"] for one in messages] == ["queued"]


async def test_a_model_that_is_not_there_ends_the_stream(shelf):
    async with registry(shelf) as models, client_of(models) as client:
        for ask in (text(client, model="../a"), client.model_info("d")):
            with pytest.raises(StreamError) as error:
                await ask
            assert (error.value.code, error.value.retry) == ("model_not_found", False)


async def test_a_buffer_outlives_its_model(shelf):
    """After unloading and loading, the model computes the kept tokens again."""

    async with registry(shelf) as models, client_of(models) as client:
        await text(client, model="a", max_tokens=20, keep="tale")
        await text(client, model="b", max_tokens=1)
        assert await text(client, model="a", max_tokens=1, **{"from": "tale"}) == "a"
        assert shelf.loads == ["a", "b", "a"]
        await client.release("tale")


async def test_a_buffer_is_of_one_model(shelf):
    async with registry(shelf, limit=2) as models, client_of(models) as client:
        await text(client, model="a", max_tokens=20, keep="tale")
        with pytest.raises(StreamError) as error:
            await text(client, model="b", **{"from": "tale"})
        assert error.value.code != "no_such_buffer"
        assert_names(str(error.value), "tale")
        assert await text(client, model="a", max_tokens=1, **{"from": "tale"}) == "a"
        await text(client, model="b", max_tokens=20, keep="tale")  # it is b's from now on
        assert await text(client, model="b", max_tokens=1, **{"from": "tale"}) == "a"


# The send queue of a session: ordered, bounded, and ended by a client that accepts nothing


ITEM = b'"' + b"x" * 998 + b'"'


async def never(_frame: str) -> None:
    await asyncio.Event().wait()


async def test_writes_block_while_the_client_does_not_read():
    sent: list[str] = []
    reading = asyncio.Event()

    async def send(text: str) -> None:
        await reading.wait()
        sent.append(text)

    queue = SendQueue(send, stall_seconds=60)
    running = asyncio.create_task(queue.run())
    written = 0

    async def write() -> None:
        nonlocal written
        for _ in range(2000):
            await queue.put("TOKEN", [ITEM])
            written += 1

    writing = asyncio.create_task(write())
    for _ in range(5000):
        await asyncio.sleep(0)  # every task goes as far as it can
    assert written * len(ITEM) <= 2 * LIMIT_BYTES + len(ITEM)
    reading.set()
    await writing
    while sum(text.count("x" * 998) for text in sent) < 2000:
        await asyncio.sleep(0)
    running.cancel()


async def test_items_keep_their_order_and_share_frames_of_their_kind():
    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    queue = SendQueue(send, stall_seconds=60)
    for number, word in enumerate(["MSG", "TOKEN", "TOKEN", "MSG"]):
        await queue.put(word, [b"%d" % number])
    await queue.put("TOKEN", [ITEM] * 1000)
    running = asyncio.create_task(queue.run())
    while sum(text.count("x" * 998) for text in sent) < 1000:
        await asyncio.sleep(0)
    running.cancel()
    assert sent[:3] == ["MSG [0]", "TOKEN [1,2]", "MSG [3]"]
    assert all(len(text) < FRAME_BYTES + 2 * len(ITEM) for text in sent)
    assert sum(len(json.loads(split(text)[1])) for text in sent[3:]) == 1000


async def test_a_client_that_takes_nothing_is_given_up():
    queue = SendQueue(never, stall_seconds=0.01)
    await queue.put("TOKEN", [b"1"])
    with pytest.raises(TimeoutError):
        await queue.run()


async def test_its_session_ends_with_everything_in_it(tmp_path):
    async with registry(Shelf(tmp_path), stall_seconds=0.01) as models:

        async def frames():
            yield frame("GENERATE", {"stream_id": 1, "prompt": "x", "max_tokens": 2000})
            await asyncio.Event().wait()

        await Session(models, never).serve(frames())
        assert not models.first.live
