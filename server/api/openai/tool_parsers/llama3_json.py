"""A parser for the calls of Llama 3 and 4: `{"name": ..., "parameters": {...}}`.

The tag `<|python_tag|>` may precede the calls, and semicolons separate them. Without the tag, calls are
read only at the beginning of the output, because JSON in the middle of a text may be anything.

Source: vLLM's `Llama3JsonToolParser` (`vllm/tool_parsers/llama_tool_parser.py`), whose streams follow
the same rule. Differs from vLLM, which finds calls anywhere in an output that is not streamed.
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
