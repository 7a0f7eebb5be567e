"""In how many writes an answer leaves: each one stops the engine for a moment."""

import asyncio

import pytest
from starlette.types import Message

from server.generation import Generation
from server.streaming import Answer, Connection, StreamedAnswer
from server.teaching import TeachingStream
from tests.server.harness import sse_data
from tests.server.test_bridge import TOKENIZER, order, running


def test_the_last_token_and_the_end_leave_in_one_write() -> None:
    async def test() -> list[bytes]:
        sent: list[bytes] = []

        async def receive() -> Message:
            return await asyncio.Future()  # the client stays

        async def send(message: Message) -> None:
            sent.append(message.get("body", b""))

        async with running() as bridge:
            answer = StreamedAnswer(bridge, order("x", max_tokens=3), TeachingStream(TOKENIZER))
            await answer({"type": "http"}, receive, send)
        return sent

    _head, *pieces = asyncio.run(test())
    *rest, last = [[event.get("token") for event in sse_data(piece.decode())] for piece in pieces]
    assert [token for piece in (*rest, last) for token in piece] == ["a", "b", "c", None]
    assert last[-2:] == ["c", None]


def test_a_cancelled_answer_is_cancelled_also_while_it_cleans_up() -> None:
    async def test() -> bool:
        started, cleaning, clean = asyncio.Event(), asyncio.Event(), asyncio.Event()

        class SlowToEnd(Answer):
            async def _answer(self, generation: Generation, connection: Connection) -> None:
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
            pytest.fail(f"nothing is to be sent: {message}")

        async with running() as bridge:
            answering = asyncio.create_task(SlowToEnd(bridge, order("x"))({}, receive, send))
            await cleaning.wait()
            answering.cancel()
            await asyncio.wait({answering})
            clean.set()
        return answering.cancelled()

    assert asyncio.run(test())
