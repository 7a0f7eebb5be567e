"""Calls of Llama 3 and 4: `{"name": ..., "parameters": {...}}`, possibly after `<|python_tag|>`.

Several calls are separated by semicolons. Without the tag, an output is a call only if it begins with
one, because JSON in the middle of a text may be anything.

Source: vLLM's `Llama3JsonToolParser` (`vllm/tool_parsers/llama_tool_parser.py`), whose streams follow
the same rule. Differs from vLLM: there a whole output may have calls anywhere.
"""

from collections.abc import Generator

from server.api.openai.tool_parsers.reader import SPACE, Event, ToolParser


class Llama3JsonParser(ToolParser):
    """Calls at the beginning of the output, or after the tag."""

    begin = "<|python_tag|>"

    def parse(self) -> Generator[Event | None, None, None]:
        """See `ToolParser`."""
        opening: str | None = yield from self.skip()
        while opening is not None:
            if not (yield from self.calls(SPACE + ";,")):
                yield opening
            opening = yield from self.content()
            if opening is not None:
                opening += yield from self.skip()
