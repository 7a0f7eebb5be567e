"""The response of /v1/responses, streamed or whole.

A response is a list of output items: a message with text, and function calls. A stream sends the list
as it grows. Each event has a type and a `sequence_number`:

    response.created, response.in_progress
        response.output_item.added
            response.content_part.added
                response.output_text.delta ..., response.output_text.done
            response.content_part.done
          | response.function_call_arguments.delta ..., .done
        response.output_item.done
    response.completed | response.incomplete (cut off at max_output_tokens)

The last event of a stream holds the whole response. JSON that is cut off at max_output_tokens has no
`response.output_text.done`.

Source: OpenAI's API reference; vLLM's `vllm/entrypoints/openai/responses/serving.py`.

Differs from vLLM: nothing is stored, so there are no routes to retrieve or cancel a response, and
`previous_response_id` is rejected.
"""

from collections.abc import Iterator
from typing import Any

from engine.core.tokenizer import Tokenizer
from server.api.openai.response_request import ResponseRequest
from server.api.openai.responses import chat_logprobs
from server.api.openai.tools import ToolCallWriter
from server.core.commands import OutputDelta
from server.core.request_stream import RequestStream
from server.core.settings import ServerSettings
from server.http.streaming import EVENT, sse

_STREAM = """\
event: response.output_text.delta
data: {"type": "response.output_text.delta", "output_index": 0, "item_id": "msg_1", "content_index": \
0, "delta": " there", "logprobs": [], "sequence_number": 4}

"""
RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The whole response as JSON. With stream: true, server-sent events.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"itemSchema": EVENT, "examples": {"stream": {"value": _STREAM}}},
        },
    }
}


class ResponseSerializer:
    """Writes a response, streamed or whole."""

    done = b""  # the last event says that the stream has ended

    def __init__(
        self,
        body: ResponseRequest,
        settings: ServerSettings,
        stream: RequestStream,
        tokenizer: Tokenizer,
    ) -> None:
        self._body = body
        self._stream = stream
        self._tokenizer = tokenizer
        self._model = body.model or settings.model_name
        self._id = f"resp_{stream.name.id(32)}"
        self._created_at = stream.name.created
        self._num_events = 0
        self._num_tokens = 0
        self._status = "in_progress"
        self._output: list[dict[str, Any]] = []  # the last item may be unfinished
        text_format = body.text.format if body.text else None
        self._is_json = text_format is not None and text_format.type != "text"
        self._writer: ToolCallWriter | None = None
        tools = body.chat.tool_request
        if tools is not None:
            parser = tools.parser(tokenizer.chat_template, settings.tool_call_parser)
            self._writer = None if parser is None else ToolCallWriter(parser, tools, stream.name)

    def chunk(self, delta: OutputDelta) -> bytes:
        """See `StreamSerializer`."""
        return b"".join(map(self._event, self._events(delta)))

    def closing(self) -> bytes:
        """See `StreamSerializer`. The last event was sent with the last token."""
        return b""

    def render(self, choices: list[OutputDelta]) -> dict[str, Any]:
        """See `WholeSerializer`."""
        for delta in choices:
            for _ in self._events(delta):
                pass
        return self._response()

    def _event(self, event: dict[str, Any]) -> bytes:
        event["sequence_number"] = self._num_events
        self._num_events += 1
        kind: str = event["type"]
        return b"event: " + kind.encode() + b"\n" + sse(event)

    def _events(self, delta: OutputDelta) -> Iterator[dict[str, Any]]:
        """Add new output to the items; yield the events that describe the changes.

        Events share the items, so each event must be written before the next is requested.
        """
        if self._num_tokens == 0:
            yield {"type": "response.created", "response": self._response()}
            yield {"type": "response.in_progress", "response": self._response()}
        self._num_tokens += len(delta.ids)
        text, ended = "".join(delta.texts), delta.finish_reason is not None
        scored = chat_logprobs(delta, self._tokenizer)
        logprobs = [] if scored is None else scored["content"]
        if self._writer is not None:
            parts = self._writer.deltas(text, ended=ended)
        else:
            parts = [{"content": text}] if text or logprobs else []
        for part in parts:
            if "content" in part:
                yield from self._add_text(part["content"], logprobs)
                logprobs = []  # sent once per delta, with its first text
            for call in part.get("tool_calls", ()):
                yield from self._add_call(call)
        if ended:
            if not self._output:  # an empty answer is an empty message
                yield from self._add_text("", [])
            self._status = "incomplete" if delta.finish_reason == "length" else "completed"
            yield from self._end_item()
            yield {"type": f"response.{self._status}", "response": self._response()}

    def _add_text(self, text: str, logprobs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        if not self._output or self._output[-1]["type"] != "message":
            yield from self._end_item()
            yield from self._begin_item(
                {"type": "message", "id": self._new_id("msg"), "role": "assistant", "content": []}
            )
            empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            self._output[-1]["content"].append(empty)
            yield self._inside("response.content_part.added", content_index=0, part=empty)
        part = self._output[-1]["content"][0]
        part["text"] += text
        part["logprobs"] += logprobs
        more = {"content_index": 0, "delta": text, "logprobs": logprobs}
        yield self._inside("response.output_text.delta", **more)

    def _add_call(self, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Add a delta of a chat's tool call: a new call, or a piece of its arguments."""
        if "id" in call:
            yield from self._end_item()
            yield from self._begin_item(
                {
                    "type": "function_call",
                    "id": self._new_id("fc"),
                    "call_id": call["id"],
                    "name": call["function"]["name"],
                    "arguments": "",
                }
            )
        if text := call["function"]["arguments"]:
            self._output[-1]["arguments"] += text
            yield self._inside("response.function_call_arguments.delta", delta=text)

    def _begin_item(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        item["status"] = "in_progress"
        self._output.append(item)
        yield self._at("response.output_item.added", item=item)

    def _end_item(self) -> Iterator[dict[str, Any]]:
        """End the last item, if any, because a new item begins or the output has ended."""
        if not self._output:
            return
        item = self._output[-1]
        item["status"] = "incomplete" if self._status == "incomplete" else "completed"
        if item["type"] == "message":
            part = item["content"][0]
            # OpenAI's SDK parses the JSON of this event, so JSON that was cut off would raise an error
            # in the client before it gets `response.incomplete`.
            if self._status != "incomplete" or not self._is_json:
                done = {"content_index": 0, "text": part["text"], "logprobs": part["logprobs"]}
                yield self._inside("response.output_text.done", **done)
            yield self._inside("response.content_part.done", content_index=0, part=part)
        else:
            arguments = item["arguments"]
            yield self._inside("response.function_call_arguments.done", arguments=arguments)
        yield self._at("response.output_item.done", item=item)

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}_{self._stream.name.id(24, prefix, len(self._output))}"

    def _at(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return an event about the last item."""
        return {"type": kind, "output_index": len(self._output) - 1} | fields

    def _inside(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return an event about a part of the last item."""
        return self._at(kind, item_id=self._output[-1]["id"], **fields)

    def _response(self) -> dict[str, Any]:
        """Return the response so far."""
        body, chat = self._body, self._body.chat
        shape = body.text.format if body.text else None
        text = (
            {"type": "text"}
            if shape is None
            else shape.model_dump(by_alias=True, exclude_none=True)
        )
        params = self._stream.prompts[0].params
        incomplete = {"reason": "max_output_tokens"} if self._status == "incomplete" else None
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created_at,
            "status": self._status,
            "error": None,
            "incomplete_details": incomplete,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self._model,
            "output": list(self._output),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": params.temperature,
            "text": {"format": text},
            "tool_choice": body.tool_choice or ("auto" if body.tools else "none"),
            "tools": body.tools or [],
            "top_logprobs": chat.top_logprobs or 0,
            "top_p": params.top_p,
            "truncation": "disabled",
            "usage": None if self._status == "in_progress" else self._usage(),
            "user": chat.user,
        }

    def _usage(self) -> dict[str, Any]:
        """Return the token counts under this endpoint's names."""
        prompt_tokens = self._stream.prompt_tokens
        cached = sum(self._stream.cached_tokens)
        return {
            "input_tokens": prompt_tokens,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": self._num_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt_tokens + self._num_tokens,
        }
