"""Tool calls in a response of /v1/chat/completions: as a stream's deltas, or as a whole message.

A call's deltas have the form that OpenAI's SDKs assemble and that vLLM sends (`DeltaToolCall`): the
first delta announces the call, and the others are pieces of its arguments.

    {"index": 0, "id": ..., "type": "function", "function": {"name": ..., "arguments": ""}}
    {"index": 0, "function": {"arguments": ...}}
"""

import secrets
import string
from typing import Any

from server.api.openai.tool_parsers.mistral import MistralParser
from server.api.openai.tool_parsers.reader import CallArguments, Event, ToolParser
from server.api.openai.tools import ToolRequest

_ALPHANUMERIC = string.ascii_letters + string.digits


class ToolCallWriter:
    """Writes one choice of a request with tools."""

    def __init__(self, parser: ToolParser, tools: ToolRequest) -> None:
        self._parser = parser
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
        if isinstance(self._parser, MistralParser):
            return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))
        return f"call_{secrets.token_hex(12)}"
