"""The send queue of a session: ordered, bounded, and ended by a client that accepts nothing."""

import asyncio
import json
from pathlib import Path

import pytest

from server.api.lmtp.messages import frame, split
from server.api.lmtp.session import FRAME_BYTES, LIMIT_BYTES, SendQueue, Session
from tests.server.shelf import Shelf, registry

ITEM = b'"' + b"x" * 998 + b'"'


async def never(_frame: str) -> None:
    await asyncio.Event().wait()


async def test_writes_block_while_the_client_does_not_read() -> None:
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


def test_items_keep_their_order_and_share_frames_of_their_kind() -> None:
    async def test() -> list[str]:
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
        return sent

    sent = asyncio.run(test())
    assert sent[:3] == ["MSG [0]", "TOKEN [1,2]", "MSG [3]"]
    assert all(len(text) < FRAME_BYTES + 2 * len(ITEM) for text in sent)
    assert sum(len(json.loads(split(text)[1])) for text in sent[3:]) == 1000


async def test_a_client_that_takes_nothing_is_given_up() -> None:
    queue = SendQueue(never, stall_seconds=0.01)
    await queue.put("TOKEN", [b"1"])
    with pytest.raises(TimeoutError):
        await queue.run()


async def test_its_session_ends_with_everything_in_it(tmp_path: Path) -> None:
    async with registry(Shelf(tmp_path), stall_seconds=0.01) as models:

        async def frames():
            yield frame("GENERATE", {"stream_id": 1, "prompt": "x", "max_tokens": 2000})
            await asyncio.Event().wait()

        await Session(models, never).serve(frames())
        assert not models.first._live
