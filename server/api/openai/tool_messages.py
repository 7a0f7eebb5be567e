"""Messages of a conversation with tool calls, as the chat template expects them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from server.core.settings import MAX_NAME_LENGTH
from server.http.fields import Open


class CalledFunction(Open):
    """A function that the assistant has called."""

    name: str = Field(max_length=MAX_NAME_LENGTH)
    arguments: str | dict[str, Any] | None = Field(None, description="The arguments as JSON.")


class MessageToolCall(Open):
    """A call in a message of the assistant."""

    id: str | None = Field(None, max_length=MAX_NAME_LENGTH)
    type: str = "function"
    function: CalledFunction


MessageToolCalls = Annotated[list[MessageToolCall], Field(fail_fast=True)]


def template_tool_calls(calls: Iterable[MessageToolCall]) -> list[dict[str, Any]]:
    """Return calls as templates expect them, with the arguments as objects.

    Arguments that are not a JSON object become an empty object, as in vLLM (`_postprocess_messages` in
    `vllm/renderers/chat_utils.py`). An error would end the conversation because of an earlier message.
    """
    plain = []
    for call in calls:
        values = call.model_dump(exclude_none=True)
        values["type"] = call.type
        values["function"]["arguments"] = _object(call.function.arguments)
        plain.append(values)
    return plain


def _object(arguments: str | dict[str, Any] | None) -> dict[str, Any]:
    if isinstance(arguments, dict):
        return arguments
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def with_names(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages, with the name of the function added to each tool's result.

    OpenAI's clients send only the id of the call, and some templates need the name.
    """
    names: dict[str, str] = {}
    named = []
    for message in messages:
        for call in message.get("tool_calls", ()):
            names[call.get("id", "")] = call["function"]["name"]
        plain = dict(message)
        if message["role"] == "tool" and message.get("tool_call_id") in names:
            plain = {"name": names[message["tool_call_id"]]} | plain
        named.append(plain)
    return named


def without_tool_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages for a template that does not read tools.

    The assistant's calls become its content, in the form in which `tool_choice: required` makes the
    model write them. All results of a turn become one message of the user, because many templates
    require roles to alternate.
    """
    plain: list[dict[str, Any]] = []
    after_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result and after_result:
            plain[-1]["content"] += "\n" + message["content"]
        elif is_result:
            plain.append({"role": "user", "content": message["content"]})
        else:
            plain.append(_with_calls_as_content(message))
        after_result = is_result
    return plain


def _with_calls_as_content(message: Mapping[str, Any]) -> dict[str, Any]:
    plain = dict(message)
    calls = [
        {"name": call["function"]["name"], "parameters": call["function"]["arguments"]}
        for call in plain.pop("tool_calls", ())
    ]
    if calls:
        plain["content"] += json.dumps(calls, ensure_ascii=False)
    return plain
