"""`tools`, `tool_choice` and `parallel_tool_calls`: the functions that the model may or must call.

    none       the chat template shows the tools to the model, but the output is only content
    auto       the model decides; its calls are parsed from the output (`tool_parsers`)
    required   a grammar forces a list of `{"name": ..., "parameters": ...}`
    a name     a grammar forces the arguments of this function

A chat template that does not read `tools` cannot show them. The model cannot choose a tool then, so
`auto` is a 400. `required` and a named function work, because the grammar knows the tools.

With `auto`, a `response_format` applies to the whole output, as in vLLM. With a forced call, the tools'
schema replaces it.

Source: vLLM's `get_json_schema_from_tools` (`vllm/tool_parsers/utils.py`). Differs from vLLM: each
tool keeps its own `$defs`, so tools with different definitions of the same name work together, and
`auto` needs no option if the chat template shows which parser to use. vLLM 0.32 can force calls of
`auto` to match their schema with structural tags; here, only calls of `required` and of a named
function are forced to match it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from engine.core.tokenizer import Tokenizer, encode_continuation
from engine.models.text.chat_template import ChatTemplate
from server.api.openai.structured import Shape, json_shape
from server.api.openai.tool_parsers import (
    TOOL_PARSERS,
    MistralParser,
    NamedParser,
    RequiredParser,
    find_parser,
)
from server.api.openai.tool_reader import CallArguments, Event, ToolParser
from server.core.settings import MAX_NAME_LENGTH
from server.http.continued import StreamName
from server.http.errors import bad_request
from server.http.fields import Open

ToolChoice = Literal["none", "auto", "required", "function"]

# The number of calls that `required` always allows, however few functions there are. It is enough for
# OpenAI's example, the weather in three cities, and few enough for the default of --chat-max-tokens:
# the bundled model writes about 30 tokens for a call of a function with two arguments.
LEAST_CALLS = 3

_NO_POINTER = re.compile(r"[^A-Za-z0-9_.-]")  # characters with a meaning in "#/$defs/..."
_NO_PARAMETERS = {"type": "object", "properties": {}}


class FunctionDefinition(Open):
    """A function. Other fields are passed to the chat template."""

    name: str = Field(min_length=1, max_length=MAX_NAME_LENGTH, examples=["get_weather"])
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="JSON schema of the arguments.")


class Tool(Open):
    """A tool that the model may call."""

    type: Literal["function"] = "function"
    function: FunctionDefinition


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The tools of a request.

    tools     the tools, as the chat template receives them
    choice    the mode; "function" for a named function
    name      the named function, or an empty string
    parallel  whether the model may call several functions
    """

    tools: Sequence[Mapping[str, Any]]
    choice: ToolChoice
    name: str = ""
    parallel: bool = True

    @property
    def forced(self) -> bool:
        """Whether a grammar forces a call."""
        return self.choice in ("required", "function")

    def shape(self) -> Shape | None:
        """Return the shape of a forced call; None if none is forced."""
        functions = [tool["function"] for tool in self.tools]
        if self.choice == "function":
            function = next(each for each in functions if each["name"] == self.name)
            return json_shape(function.get("parameters") or _NO_PARAMETERS, "tools")
        if self.choice == "required":
            return json_shape(required_schema(functions, parallel=self.parallel), "tools")
        return None

    def parser(self, template: ChatTemplate, name: str | None) -> ToolParser | None:
        """Return a new parser for one output; None if the output cannot contain a call.

        `name` is the server's `--tool-call-parser`. Raises ApiError if the model cannot choose a tool,
        or if the format of its calls is not known.
        """
        if self.choice == "required":
            return RequiredParser()
        if self.choice == "function":
            return NamedParser(self.name)
        if self.choice == "none":
            return None
        if not template.takes_tools:
            raise bad_request(
                "tool_choice",
                "tool_choice auto needs a chat template that shows the tools to the model, and this "
                "model's does not: set tool_choice to required or to a function",
            )
        name = name or find_parser(template.source or "")
        if name is None:
            raise bad_request(
                "tool_choice",
                "tool_choice auto needs the format in which this model writes its calls, which its "
                "chat template does not show: set tool_choice to required or to a function, or start "
                f"the server with --tool-call-parser {' | '.join(TOOL_PARSERS)}",
            )
        return TOOL_PARSERS[name]()


def tool_request(
    tools: Sequence[Tool] | None,
    choice: str | Mapping[str, Any] | None,
    parallel: bool | None,
) -> ToolRequest | None:
    """Return the tools of a request, or None. Raises ApiError for fields that contradict each other."""
    if tools is not None and not tools:
        raise bad_request("tools", "tools must have at least one entry: add a tool or leave it out")
    if tools is None:
        if choice not in (None, "none", "auto"):
            raise bad_request("tool_choice", "tool_choice needs tools: add tools or leave it out")
        return None
    plain = [{"type": tool.type} | tool.model_dump(exclude_none=True) for tool in tools]
    is_parallel = parallel is not False
    match choice:
        case None | "auto":
            return ToolRequest(plain, "auto", parallel=is_parallel)
        case "none" | "required":
            return ToolRequest(plain, choice, parallel=is_parallel)
    name = _named(choice)
    if all(tool.function.name != name for tool in tools):
        message = f"tool_choice names {name[:MAX_NAME_LENGTH]!r}, which is not one of the tools"
        raise bad_request("tool_choice", message)
    return ToolRequest(plain, "function", name)


def _named(choice: str | Mapping[str, Any]) -> str:
    """Return the name in `{"type": "function", "function": {"name": ...}}`."""
    if not isinstance(choice, str) and choice.get("type", "function") == "function":
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            return name
    raise bad_request(
        "tool_choice",
        'tool_choice must be "none", "auto", "required" or '
        f'{{"type": "function", "function": {{"name": ...}}}}, got {str(choice)[:60]}',
    )


def check_ordinary(field: str, value: object, tokenizer: Tokenizer) -> None:
    """Raise ApiError if a value that the template writes into the prompt has a special token."""
    text = json.dumps(value, ensure_ascii=False)
    if encode_continuation(text, tokenizer) != tokenizer.encode_ordinary(text):
        message = f"{field} must not contain special tokens of the model: remove them"
        raise bad_request(field, message)


def required_schema(functions: Sequence[Mapping[str, Any]], *, parallel: bool) -> dict[str, Any]:
    """Return the schema of a list of calls: at least one, and exactly one unless `parallel`.

    The list has at most `LEAST_CALLS` calls, or one for each function if there are more functions. The
    parameters of each function move to `$defs`, and references in them are changed accordingly.

    Differs from vLLM (`vllm/tool_parsers/utils.py`), whose list is unbounded: a small model that
    repeats a call continues until `max_tokens` cuts the last call off.
    """
    definitions: dict[str, Any] = {}
    calls = []
    for function in functions:
        key = _NO_POINTER.sub("_", function["name"])
        while key in definitions:
            key += "_"
        place = f"#/$defs/{key}"
        definitions[key] = _moved(function.get("parameters") or _NO_PARAMETERS, place)
        call = {"name": {"const": function["name"]}, "parameters": {"$ref": place}}
        calls.append(
            {
                "type": "object",
                "properties": call,
                "required": list(call),
                "additionalProperties": False,
            }
        )
    return {
        "type": "array",
        "minItems": 1,
        "maxItems": max(LEAST_CALLS, len(calls)) if parallel else 1,
        "items": {"anyOf": calls},
        "$defs": definitions,
    }


def _moved(schema: Any, place: str) -> Any:
    """Return a schema whose references to itself (`#/...`) point to its new place."""
    if isinstance(schema, dict):
        return {
            key: place + value[1:]
            if key == "$ref" and isinstance(value, str) and value.startswith("#")
            else _moved(value, place)
            for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [_moved(one, place) for one in schema]
    return schema


class ToolCallWriter:
    """Writes the calls of one choice: as a stream's deltas, or as a whole message.

    A call's deltas have the form that OpenAI's SDKs assemble and that vLLM sends (`DeltaToolCall`): the
    first delta announces the call, and the others are pieces of its arguments.

        {"index": 0, "id": ..., "type": "function", "function": {"name": ..., "arguments": ""}}
        {"index": 0, "function": {"arguments": ...}}
    """

    def __init__(
        self, parser: ToolParser, tools: ToolRequest, name: StreamName, choice: int = 0
    ) -> None:
        self._parser = parser
        self._name = name
        self._choice = choice
        self._tools = tools
        self._num_calls = 0

    def finish_reason(self, reason: str | None) -> str | None:
        """Return the finish reason to send: "tool_calls" if the model chose calls and then stopped.

        As in vLLM and OpenAI's API, the call of a named function ends with "stop".
        """
        chosen = self._num_calls > 0 and self._tools.choice != "function"
        return "tool_calls" if chosen and reason == "stop" else reason

    def deltas(self, text: str, *, ended: bool) -> list[dict[str, Any]]:
        """Return the deltas of a piece of the output. `ended` says that it is the last piece."""
        events = self._parser.feed(text)
        if ended:
            events += self._parser.finish()
        return [delta for event in events if (delta := self._delta(event))]

    def message(self, text: str) -> dict[str, Any]:
        """Return the content and the calls of a whole output; `content` is None if it is empty."""
        content = ""
        calls: list[dict[str, Any]] = []
        for delta in self.deltas(text, ended=True):
            content += delta.get("content", "")
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    calls.append({name: call[name] for name in ("id", "type", "function")})
                else:
                    calls[-1]["function"]["arguments"] += call["function"]["arguments"]
        return {"content": content or None} | ({"tool_calls": calls} if calls else {})

    def _delta(self, event: Event) -> dict[str, Any]:
        """Return an event as a delta; an empty delta for a second call unless calls may be parallel."""
        if isinstance(event, str):
            return {"content": event}
        if isinstance(event, CallArguments):
            call: dict[str, Any] = {"function": {"arguments": event.text}}
        else:
            self._num_calls += 1
            function = {"name": event.name, "arguments": ""}
            call = {"id": self._new_id(), "type": "function", "function": function}
        if self._num_calls > 1 and not self._tools.parallel:
            return {}
        return {"tool_calls": [{"index": self._num_calls - 1} | call]}

    def _new_id(self) -> str:
        """Return an id like OpenAI's. Mistral's chat templates accept only ids of nine characters."""
        call = "call", self._choice, self._num_calls
        if isinstance(self._parser, MistralParser):
            return self._name.id(9, *call)
        return f"call_{self._name.id(24, *call)}"
