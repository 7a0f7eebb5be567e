"""Parsers for calls that a grammar forces: `tool_choice` "required", or a named function.

Such an output has no tags around the calls: it is a JSON list of calls, or the arguments of the named
function. If max_tokens cuts the output off before the first call is announced, the response has neither
calls nor content.

Source: vLLM's `vllm/tool_parsers/streaming.py`.
"""

from collections.abc import Generator

from server.api.openai.tool_parsers.reader import CallArguments, CallStart, Event, ToolParser


class RequiredParser(ToolParser):
    """A list of `{"name": ..., "parameters": {...}}`."""

    def parse(self) -> Generator[Event | None, None, None]:
        """See `ToolParser`."""
        yield from self.skip()
        yield from self.call_list()


class NamedParser(ToolParser):
    """The arguments of the function `name`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def parse(self) -> Generator[Event | None, None, None]:
        """See `ToolParser`."""
        while not (self.buffer or self.ended):
            yield None
        if self.buffer:
            yield CallStart(self._name)
        while True:
            if self.buffer:
                yield CallArguments(self.take(len(self.buffer)))
            if self.ended:
                return
            yield None
