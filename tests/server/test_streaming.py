"""An answer is sent in few writes, because each of them stops the engine for a moment."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from starlette.types import Message

from engine.scheduling.sampling_params import SamplingParams
from server.api.openai.chat import ChatRequest, ChatSerializer
from server.api.openai.completions import TeachingSerializer
from server.core.bridge import Bridge
from server.core.messages import Prompt
from server.core.models import Models
from server.core.request_stream import GenerationRequest, RequestContext, RequestStream
from server.core.settings import ServerSettings
from server.http.streaming import Answer, Connection, StreamedAnswer, StreamSerializer
from tests.server.bridges import TOKENIZER, order, running
from tests.server.harness import sse_data

SCOPE = {"type": "http", "state": {"context": RequestContext(lambda _stream: None)}}


def writes(serializer: Callable[..., StreamSerializer], **sampling: Any) -> list[list[Any]]:
    """The events of each write of a streamed answer, after its headers."""

    async def test() -> list[bytes]:
        sent: list[bytes] = []

        async def receive() -> Message:
            return await asyncio.Future()  # the client stays

        async def send(message: Message) -> None:
            sent.append(message.get("body", b""))

        async with running() as bridge:
            prompt = Prompt(TOKENIZER.encode("x"), SamplingParams(**sampling))
            answer = StreamedAnswer(
                Models(bridge),
                None,
                GenerationRequest(lambda _bridge: [prompt]),
                serializer,
            )
            await answer(SCOPE, receive, send)
        return sent

    _head, *pieces = asyncio.run(test())
    return [sse_data(piece.decode()) for piece in pieces]


def chat_writes(*, include_usage: bool = False, **sampling: Any) -> list[list[Any]]:
    options = {"include_usage": include_usage}
    body = ChatRequest.model_validate({"messages": [], "stream": True, "stream_options": options})
    return writes(partial(ChatSerializer, body, ServerSettings()), **sampling)


def test_the_last_token_and_the_end_leave_in_one_write() -> None:
    pieces = writes(TeachingSerializer, max_tokens=3)
    *rest, last = [[event.get("token") for event in piece] for piece in pieces]
    assert [token for piece in (*rest, last) for token in piece] == ["a", "b", "c", None]
    assert last[-2:] == ["c", None]


def test_the_roles_of_a_chat_leave_in_one_write_with_its_first_tokens() -> None:
    pieces = chat_writes(max_tokens=4, n=2)
    deltas = [
        [event["choices"][0]["delta"] for event in piece if event != "[DONE]"] for piece in pieces
    ]
    assert deltas[0][:2] == [{"role": "assistant", "content": ""}] * 2
    assert [event["choices"][0]["index"] for event in pieces[0][:2]] == [0, 1]
    assert deltas[0][2]["content"].startswith("a")
    assert sum("role" in delta for piece in deltas for delta in piece) == 2


def test_a_chat_without_text_has_a_role_and_an_end() -> None:
    *chunks, usage, done = [
        event
        for piece in chat_writes(max_tokens=4, stop=["a"], include_usage=True)
        for event in piece
    ]
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [(one["delta"], one["finish_reason"]) for one in choices] == [
        ({"role": "assistant", "content": ""}, None),
        ({}, "stop"),
    ]
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 1)
    assert done == "[DONE]"


def test_the_role_of_a_chat_comes_with_a_first_token_that_is_held_back() -> None:
    """The time to the first chunk is the time to the first token, whatever text it gives."""
    first, *_ = chat_writes(max_tokens=8, stop=["ab"])
    assert first[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}


def test_log_probabilities_belong_to_the_tokens_of_a_chat_and_not_to_its_role() -> None:
    chunks = [event for piece in chat_writes(max_tokens=3, logprobs=1) for event in piece]
    role, *tokens = [chunk["choices"][0] for chunk in chunks if chunk != "[DONE]"]
    assert (role["delta"]["role"], role["logprobs"]) == ("assistant", None)
    told = [token for one in tokens if one["logprobs"] for token in one["logprobs"]["content"]]
    assert [token["token"] for token in told] == ["a", "b", "c"]


def test_a_cancelled_answer_is_cancelled_also_while_it_cleans_up() -> None:
    async def test() -> bool:
        started, cleaning, clean = asyncio.Event(), asyncio.Event(), asyncio.Event()

        class SlowToEnd(Answer):
            async def _answer(
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
                SlowToEnd(Models(bridge), None, order("x"), None)(SCOPE, receive, send)
            )
            await cleaning.wait()
            answering.cancel()
            await asyncio.wait({answering})
            clean.set()
        return answering.cancelled()

    assert asyncio.run(test())
