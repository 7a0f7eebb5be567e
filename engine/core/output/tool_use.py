"""Tool use inside the engine: the model calls the calculator, and the engine inserts the result.

When a sample has written `<|python_start|>17+25<|python_end|>`, the engine evaluates the expression
and forces `<|output_start|>42<|output_end|>` into the text. The forced tokens are computed together
with the next row, so they need no extra step. An expression that cannot be evaluated forces
nothing.

Source: nanochat's `nanochat/engine.py`, where each row keeps the same state. vLLM and SGLang leave
tools to the client.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from engine.core.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ToolTokens:
    """Ids of the four tokens that frame a call and its output."""

    call_start: int
    call_end: int
    output_start: int
    output_end: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "ToolTokens | None":
        """Return the tokenizer's tool tokens, or None if it lacks any of them."""
        names = ("<|python_start|>", "<|python_end|>", "<|output_start|>", "<|output_end|>")
        ids = [tokenizer.token_id(name) for name in names]
        call_start, call_end, output_start, output_end = ids
        if call_start is None or call_end is None or output_start is None or output_end is None:
            return None
        return cls(call_start, call_end, output_start, output_end)


class Tool(Protocol):
    """A tool for one sample. Constructed like `ToolUse`."""

    def __init__(
        self, tokens: ToolTokens, tokenizer: Tokenizer, evaluate: Callable[[str], str | None]
    ) -> None: ...

    def feed(self, token: int) -> list[int]:
        """Read a sampled token and return the tokens to force after it, usually none."""


@dataclass(slots=True)
class ToolUse:
    """The calculator of one sample. `call` has the tokens of an open call, if any."""

    tokens: ToolTokens
    tokenizer: Tokenizer
    evaluate: Callable[[str], str | None]
    call: list[int] | None = field(default=None)

    def feed(self, token: int) -> list[int]:
        """Read a sampled token and return the tokens to force after it, usually none."""
        if token == self.tokens.call_start:
            self.call = []
        elif token == self.tokens.call_end:
            call, self.call = self.call, None
            return self._answer(call) if call else []
        elif self.call is not None:
            self.call.append(token)
        return []

    def _answer(self, call: list[int]) -> list[int]:
        result = self.evaluate(self.tokenizer.decode(call))
        if result is None:
            return []
        return [
            self.tokens.output_start,
            *self.tokenizer.encode_ordinary(result),
            self.tokens.output_end,
        ]


class SpecialTokens:
    """Which tokens the text leaves out with `skip_special_tokens`; follows the tokens of one output.

    Special tokens have no text then. Neither has a tool call, nor its result: what the model says to
    its tool is not part of the answer. `in_tool` is set inside of them.

        <|python_start|> 17 + 25 <|python_end|> <|output_start|> 42 <|output_end|> 17 + 25 = 42.
                                                                                   ^ the text begins

    Differs from vLLM: it has no tools inside the engine, so it leaves out special tokens only.
    """

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
