"""A parser for the calls of Mistral's models after `[TOOL_CALLS]`, in either of two forms.

    [TOOL_CALLS][{"name": "add", "arguments": {"a": 3}}, ...]     tokenizers up to version 7
    [TOOL_CALLS]add[ARGS]{"a": 3}[TOOL_CALLS]...                  tokenizers from version 11 on

In the second form, `[ARGS]` may be missing, and `[CALL_ID]` and an id may come before it.

Source: vLLM's `vllm/parser/mistral.py`.
"""

import re
from collections.abc import Generator

from server.api.openai.tool_parsers.reader import CallStart, Event, ToolParser

_NAME = re.compile(r"([\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=\{)")
_MAX_NAME = 256  # characters up to the first brace


class MistralParser(ToolParser):
    """A list of calls, or a name and its arguments."""

    begin = "[TOOL_CALLS]"

    def parse(self) -> Generator[Event | None, None, None]:
        """See `ToolParser`."""
        while (opening := (yield from self.content())) is not None:
            opening += yield from self.skip()
            if not ((yield from self.call_list()) or (yield from self._named())):
                yield opening

    def _named(self) -> Generator[Event | None, None, bool]:
        while not (name := _NAME.match(self.buffer[:_MAX_NAME])):
            head = self.buffer[:_MAX_NAME]
            if self.ended or "{" in head or len(head) == _MAX_NAME:
                return False
            yield None
        yield CallStart(name[1])
        self.take(name.end())
        yield from self.arguments()
        return True
