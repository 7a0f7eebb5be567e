"""Lesson 12: a state machine that follows a sample and answers its tool calls."""

from collections.abc import Callable

from engine.core.output.tool_use import ToolTokens
from engine.core.tokenizer import Tokenizer


class ToolState:
    """The state of one sample: the tokens of the open call, or None."""

    def __init__(
        self, marks: ToolTokens, tokenizer: Tokenizer, evaluate: Callable[[str], str | None]
    ) -> None:
        self.marks = marks
        self.tokenizer = tokenizer
        self.evaluate = evaluate
        self.call: list[int] | None = None

    def feed(self, token: int) -> list[int]:
        """Process a sampled token; return the tokens to force after it."""
        if token == self.marks.call_start:
            self.call = []
        elif self.call is None:
            return []
        elif token != self.marks.call_end:
            self.call.append(token)
        else:
            result = self.evaluate(self.tokenizer.decode(self.call))
            self.call = None
            if result is not None:
                answer = self.tokenizer.encode_ordinary(result)
                return [self.marks.output_start, *answer, self.marks.output_end]
        return []
