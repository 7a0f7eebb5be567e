"""In how many writes an answer leaves: each one stops the engine for a moment."""

import asyncio

from starlette.types import Message

from server.streaming import StreamedAnswer
from server.teaching import TeachingStream
from tests.server.bridges import TOKENIZER, order, running
from tests.server.harness import sse_data


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
