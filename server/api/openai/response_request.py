"""The body of /v1/responses, and its conversion to a chat request.

The two bodies differ in names and nesting, but not in meaning: `instructions` and `input` are the
conversation, `text.format` is `response_format`, and a function's fields are siblings of its `type`.
All other fields are those of /v1/chat/completions, including vLLM's sampling parameters.

This server keeps no responses, so a client sends the whole conversation each time. `store: true` is
OpenAI's default and is therefore accepted, but the response says `store: false`.

Source: OpenAI's API reference; vLLM's `ResponsesRequest`
(`vllm/entrypoints/openai/responses/protocol.py`).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from server.api.openai.chat import ChatRequest
from server.api.openai.conversation import MAX_MESSAGES
from server.api.openai.fields import Unsupported
from server.api.openai.requests import FIRST_ERROR
from server.core.settings import MAX_NAME_LENGTH, MAX_TOOLS
from server.http.errors import ApiError, bad_request, in_json, invalid_body, shown, unknown_field
from server.http.fields import Open, Strict

LOGPROBS = "message.output_text.logprobs"

# Values of `include` that add nothing to an answer of this server.
_NEUTRAL_INCLUDES = ("reasoning.encrypted_content",)
# Unsupported fields that only this endpoint has; the others are in `fields.py`.
_WHOLE = "send the whole conversation as input"
_UNSUPPORTED = {
    "background": Unsupported((False,)),
    "conversation": Unsupported(instead=_WHOLE),
    "enable_response_messages": Unsupported((False,), instead="read output"),
    "max_tool_calls": Unsupported(),
    "previous_input_messages": Unsupported(([],), instead=_WHOLE),
    "previous_response_id": Unsupported(instead=_WHOLE),
    "prompt": Unsupported(instead="use instructions and input"),
    "reasoning": Unsupported(({}, {"effort": "none"}, {"effort": None, "summary": None})),
    "store": Unsupported((False, True)),
    "text.verbosity": Unsupported(("medium",)),
    "truncation": Unsupported(("disabled",), instead="shorten the input"),
}
# The chat request's fields under this endpoint's names, for error messages.
_NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
}
_TEXT_PARTS = ("input_text", "output_text", "text")


class InputPart(Open):
    """A part of a message's content, or of a function's output."""

    type: str = Field(max_length=MAX_NAME_LENGTH)
    text: str | None = None


Content = str | Annotated[list[InputPart], FIRST_ERROR]


class InputItem(Open):
    """A message, a function call of the assistant, or the function's output."""

    type: str = Field("message", max_length=MAX_NAME_LENGTH)
    role: str | None = Field(None, max_length=MAX_NAME_LENGTH)
    content: Content | None = None
    call_id: str | None = Field(None, max_length=MAX_NAME_LENGTH)
    name: str | None = Field(None, max_length=MAX_NAME_LENGTH)
    arguments: str | None = None
    output: Content | None = None


class TextFormat(Strict):
    """The format of the output's text."""

    type: str = "text"
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextConfig(Open):
    """Settings of the output's text."""

    format: TextFormat | None = None


class ResponseRequest(Open):
    """A body for /v1/responses. Further fields are those of /v1/chat/completions."""

    input: str | Annotated[list[InputItem], FIRST_ERROR] = Field(
        max_length=MAX_MESSAGES << 12, description="The conversation: a text or a list of items."
    )
    model: str | None = Field(None, max_length=MAX_NAME_LENGTH)
    instructions: str | None = Field(None, description="A system message before the input.")
    max_output_tokens: int | None = Field(
        None, ge=1, description="Maximum number of output tokens."
    )
    include: Annotated[list[str], FIRST_ERROR] | None = Field(
        None, max_length=16, description=f'["{LOGPROBS}"] adds log-probabilities.'
    )
    top_logprobs: int | None = Field(
        None, ge=0, description="Also return the log-probabilities of this many most likely tokens."
    )
    stream: bool | None = Field(None, description="Send events as tokens are generated.")
    text: TextConfig | None = None
    tools: Annotated[list[dict[str, Any]], FIRST_ERROR] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, str] | None = Field(
        None, max_length=16, description="Copied to the response."
    )
    _chat: ChatRequest = PrivateAttr()

    @model_validator(mode="after")
    def _convert(self) -> Self:
        """Build the chat request. Errors (ApiError) use this endpoint's names of the fields."""
        if isinstance(self.input, list) and len(self.input) > MAX_MESSAGES:
            message = f"input must have at most {MAX_MESSAGES} entries, got {len(self.input)}"
            raise bad_request("input", message)
        if not self.input:
            raise bad_request("input", "input must be a text or a list of items, got an empty one")
        more = dict(self.model_extra or {})
        for name in ("messages", "max_tokens", "max_completion_tokens", "response_format", "n"):
            if more.get(name) is not None:
                raise unknown_field(name)
        if self.text is not None:
            more |= {f"text.{name}": value for name, value in (self.text.model_extra or {}).items()}
        for name, field in _UNSUPPORTED.items():
            field.check(name, more.pop(name, None))
        try:
            self._chat = ChatRequest.model_validate(more | self._chat_fields())
        except ValidationError as error:
            raise renamed(invalid_body(error.errors(include_url=False))) from error
        except ApiError as error:
            raise renamed(error) from error
        return self

    @property
    def chat(self) -> ChatRequest:
        """The same request, as a chat request."""
        return self._chat

    def _chat_fields(self) -> dict[str, Any]:
        for name in self.include or ():
            if name != LOGPROBS and name not in _NEUTRAL_INCLUDES:
                raise bad_request(
                    "include", f"include {name[:60]!r} is not supported: leave it out"
                )
        logprobs = LOGPROBS in (self.include or ())
        if self.top_logprobs and not logprobs:
            raise bad_request("include", f'top_logprobs needs include: ["{LOGPROBS}"]')
        text_format = self.text.format if self.text else None
        fields = {
            "messages": self._messages(),
            "model": self.model,
            "max_completion_tokens": self.max_output_tokens,
            "stream": self.stream,
            "logprobs": logprobs or None,
            "top_logprobs": self.top_logprobs,
            "response_format": None if text_format is None else _response_format(text_format),
            "tools": [_tool(tool, at) for at, tool in enumerate(self.tools)]
            if self.tools
            else None,
            "tool_choice": _tool_choice(self.tool_choice) if self.tools else None,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools else None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def _messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        if self.instructions:
            messages.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*messages, {"role": "user", "content": self.input}]
        for index, item in enumerate(self.input):
            message = _message(item, f"input[{index}]")
            # The calls of one turn are separate items here, but one message in a chat.
            if item.type == "function_call" and messages and messages[-1]["role"] == "assistant":
                calls = messages[-1].setdefault("tool_calls", [])
                calls += message["tool_calls"]
            else:
                messages.append(message)
        return messages


def _message(item: InputItem, field: str) -> dict[str, Any]:
    """Return an item of the input as a message of a chat."""
    if item.type == "message" and item.role is not None:
        return {"role": item.role, "content": _text(item.content, f"{field}.content")}
    if item.type == "function_call" and item.call_id and item.name:
        function = {"name": item.name, "arguments": item.arguments or "{}"}
        call = {"id": item.call_id, "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if item.type == "function_call_output" and item.call_id:
        content = _text(item.output, f"{field}.output")
        return {"role": "tool", "tool_call_id": item.call_id, "content": content}
    raise bad_request(
        field,
        f"{field} must be a message with a role, a function_call with call_id and name, or a "
        f"function_call_output with call_id, got type {item.type[:60]!r}",
    )


def _text(content: Content | None, field: str) -> str:
    """Return the joined text of a content. Raises ApiError for a part that is not text."""
    if content is None or isinstance(content, str):
        return content or ""
    for index, part in enumerate(content):
        if part.type not in _TEXT_PARTS or part.text is None:
            at = f"{field}[{index}]"
            raise bad_request(
                at, f"{at} must be {{type: input_text, text: ...}}, got {part.type!r}"
            )
    return "".join(part.text or "" for part in content)


def _response_format(text: TextFormat) -> dict[str, Any]:
    if text.type != "json_schema":
        return {"type": text.type}
    if text.schema_ is None:
        raise bad_request("text.format.schema", "text.format of type json_schema needs a schema")
    return {
        "type": "json_schema",
        "json_schema": {
            "name": text.name or "output",
            "schema": text.schema_,
            "strict": text.strict,
        },
    }


def _tool(tool: dict[str, Any], index: int) -> dict[str, Any]:
    field = f"tools[{index}]"
    if tool.get("type") != "function":
        got = in_json(shown(tool.get("type")))
        raise bad_request(field, f"{field} must have type function, got {got}")
    function = {name: value for name, value in tool.items() if name != "type" and value is not None}
    return {"type": "function", "function": function}


def _tool_choice(choice: str | Mapping[str, Any] | None) -> str | dict[str, Any] | None:
    if choice is None or isinstance(choice, str):
        return choice
    return {"type": choice.get("type"), "function": {"name": choice.get("name")}}


def renamed(error: ApiError) -> ApiError:
    """Return an error of the chat request with this endpoint's name of the field."""
    param = error.error["param"]
    if param is None or own_name(param) == param:
        return error
    message = str(error).replace(param, own_name(param), 1)
    return bad_request(own_name(param), message, error.error["code"])


def own_name(field: str) -> str:
    """Return this endpoint's name of a field of the chat request."""
    for name in sorted(_NAMES, key=len, reverse=True):
        if field == name or field.startswith((f"{name}.", f"{name}[")):
            return _NAMES[name] + field[len(name) :]
    return field
