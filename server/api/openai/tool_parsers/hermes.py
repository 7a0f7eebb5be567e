"""A parser for calls of Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

Source: vLLM's `Hermes2ProToolParser` (`vllm/tool_parsers/hermes_tool_parser.py`).
"""

from collections.abc import Generator

from server.api.openai.tool_parsers.reader import Event, ToolParser


class HermesParser(ToolParser):
    """One call between each pair of tags."""

    begin = "<tool_call>"
    end = "</tool_call>"

    def parse(self) -> Generator[Event | None, None, None]:
        """See `ToolParser`."""
        while (opening := (yield from self.content())) is not None:
            opening += yield from self.skip()
            if (yield from self.call()):
                yield from self.skip()
                yield from self.skip_text(self.end)
            else:
                yield opening
