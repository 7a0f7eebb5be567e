"""Which tokens the text leaves out with `skip_special_tokens`.

Special tokens have no text then. Neither has a tool call, nor its result: what the model says to its
tool is not part of the answer.

    <|python_start|> 17 + 25 <|python_end|> <|output_start|> 42 <|output_end|> 17 + 25 = 42.
                                                                               ^ the text begins

Differs from vLLM: it has no tools inside the engine, so it leaves out special tokens only.
"""

from engine.core.output.tool_use import ToolTokens


class SpecialTokens:
    """Follows the tokens of one output. `in_tool` is set inside a tool call or its result."""

    def __init__(self, ids: frozenset[int], tool: ToolTokens | None) -> None:
        self._ids = ids
        self._starts = () if tool is None else (tool.call_start, tool.output_start)
        self._ends = () if tool is None else (tool.call_end, tool.output_end)
        self.in_tool = False

    def skips(self, token: int) -> bool:
        """Return whether the text leaves out the next token."""
        if token in self._starts:
            self.in_tool = True
        elif token in self._ends:
            self.in_tool = False
        return self.in_tool or token in self._ids
