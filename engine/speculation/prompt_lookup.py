"""Prompt lookup: guess that the text goes on as it went on before.

Take the last few tokens of a request, find where they stood earlier in its own text, and propose what
followed there. It costs no model and it is often right where a text repeats itself: quotations, code,
names, a summary of the prompt.

Source: vLLM's `vllm/v1/spec_decode/ngram_proposer.py`, which does the same on compiled code.
"""

from engine.scheduling.request import Request


class PromptLookup:
    """A drafter. Longer matches are tried first; of equal ones the latest counts.

    length   tokens proposed at most
    longest  tokens that have to match, at first; then fewer, down to `shortest`
    """

    def __init__(self, length: int = 4, longest: int = 4, shortest: int = 2) -> None:
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        if not 1 <= shortest <= longest:
            raise ValueError(f"shortest must lie between 1 and longest ({longest}), got {shortest}")
        self.length = length
        self.longest = longest
        self.shortest = shortest

    def propose(self, request: Request) -> list[int]:
        """What followed an earlier place where the text's end stood; [] without one.

        The latest such place with `length` tokens behind it counts. In a text that repeats itself
        quickly the very latest place has fewer, and would draft no more than one repetition.
        """
        tokens = request.tokens
        for size in range(min(self.longest, len(tokens) - 1), self.shortest - 1, -1):
            end = tokens[-size:]
            followed: list[int] = []
            for start in range(len(tokens) - size - 1, -1, -1):
                if tokens[start : start + size] == end:
                    followed = tokens[start + size : start + size + self.length]
                    if len(followed) == self.length:
                        break
            if followed:
                return followed
        return []
