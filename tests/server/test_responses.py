"""/v1/responses, judged by OpenAI's own SDK with strict response validation."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseCompletedEvent, ResponseIncompleteEvent
from pydantic import BaseModel, Field

from tests.server.harness import post, start
from tests.server.sdk import sdk

NAMED: Any = {"type": "function", "name": "note"}


class Legs(BaseModel):
    """The legs of an animal."""

    legs: int = Field(ge=0, le=9)


TOOL: Any = NAMED | {
    "description": "Note the legs of an animal.",
    "strict": True,
    "parameters": Legs.model_json_schema() | {"additionalProperties": False},
}


@pytest.fixture(scope="module")
def bundled() -> Iterator[openai.OpenAI]:
    with start(model="bundled") as server, sdk(server.url) as client:
        yield client


def test_the_conversation_is_that_of_a_chat(client):
    talk = (("user", "How"), ("assistant", "So"), ("user", "Why?"))
    first, second, last = messages = [{"role": role, "content": text} for role, text in talk]
    items: Any = [
        first | {"content": [{"type": "input_text", "text": "How"}]},
        second | {"type": "message", "content": [{"type": "output_text", "text": "So"}]},
        last,
    ]
    answer = client.responses.create(model="any", input=items)
    chat = client.chat.completions.create(model="any", messages=messages)
    assert answer.usage.input_tokens == chat.usage.prompt_tokens
    assert answer.output_text == chat.choices[0].message.content


def test_instructions_are_a_system_message(url):
    """The bundled template knows no such role, so both endpoints answer with the same error."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How?"}]
    chat = post(url, "/v1/chat/completions", {"messages": messages})
    answer = post(url, "/v1/responses", {"input": "How?", "instructions": "Be brief."})
    assert chat.status_code == answer.status_code == 400
    assert answer.json()["error"]["message"] == chat.json()["error"]["message"]


def test_a_stream_ends_with_the_whole_response(client):
    events = list(
        client.responses.create(model="any", input="Once", max_output_tokens=4, stream=True)
    )
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    last = events[-1]
    assert isinstance(last, ResponseIncompleteEvent)
    assert "".join(texts) == last.response.output_text == "abcd"
    ids = {event.item_id for event in events if event.type == "response.output_text.delta"}
    assert ids == {last.response.output[0].id}


def test_log_probabilities(client):
    answer = client.responses.create(
        model="any",
        input="Once",
        max_output_tokens=3,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
    )
    messages: Any = [{"role": "user", "content": "Once"}]
    chat = client.chat.completions.create(
        model="any", messages=messages, max_tokens=3, logprobs=True, top_logprobs=2
    )
    (message,) = answer.output
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text"
    assert part.logprobs
    expected = [one.to_dict() for one in chat.choices[0].logprobs.content]
    assert [one.to_dict() for one in part.logprobs] == expected


def test_a_tool_is_called_and_its_output_is_read(bundled):
    asked: Any = {"model": "bundled", "tools": [TOOL], "max_output_tokens": 40, "temperature": 0}
    items: list[Any] = [{"role": "user", "content": "An owl"}]
    first = bundled.responses.create(input=items, tool_choice=NAMED, **asked)
    (call,) = first.output
    assert call.type == "function_call"
    assert call.name == "note"
    Legs.model_validate_json(call.arguments)
    items += [
        call.to_dict(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "2"},
    ]
    second = bundled.responses.create(input=items, tool_choice="none", **asked)
    assert [item.type for item in second.output] == ["message"]
    assert second.usage.input_tokens > first.usage.input_tokens


def test_a_streamed_call_has_the_arguments_of_the_whole_one(bundled):
    asked: Any = {"model": "bundled", "tools": [TOOL], "max_output_tokens": 40, "temperature": 0}
    asked |= {"input": "An owl", "tool_choice": NAMED}
    (whole,) = bundled.responses.create(**asked).output
    events = list(bundled.responses.create(stream=True, **asked))
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent)
    (call,) = last.response.output
    assert whole.type == call.type == "function_call"
    assert "".join(deltas) == call.arguments == whole.arguments


CUT_OFF: dict[str, dict[str, Any]] = {
    "text": {},
    "a format": {"text_format": Legs},
    "a call": {"tools": [TOOL], "tool_choice": NAMED},
    "a list of calls": {"tools": [TOOL], "tool_choice": "required"},
}


@pytest.mark.parametrize("fields", CUT_OFF.values(), ids=CUT_OFF)
@pytest.mark.parametrize("limit", [1, 4])
def test_a_stream_that_is_cut_off_can_be_read_to_its_end(bundled, fields, limit):
    """OpenAI's SDK accumulates items and parses texts and arguments while it reads."""
    asked = {"model": "bundled", "input": "An owl", "max_output_tokens": limit, "temperature": 0}
    with bundled.responses.stream(**asked, **fields) as stream:
        events: list[Any] = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    begun = [event.item.id for event in events if event.type == "response.output_item.added"]
    ended = [event.item.id for event in events if event.type == "response.output_item.done"]
    last = events[-1]
    assert last.type == "response.incomplete"
    assert begun == ended == [item.id for item in last.response.output]
    assert (last.response.status, last.response.output[-1].status) == ("incomplete", "incomplete")
    assert last.response.usage.output_tokens == limit
