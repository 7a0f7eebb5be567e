"""Prompt lookup: guess that the text continues as it did before.

Take the last few tokens of a request, find an earlier occurrence in its own text, and propose the
tokens that followed it. Prompt lookup needs no model and is often right when a text repeats itself, as
in quotes, code, names or a summary of the prompt.

Source: vLLM's `vllm/v1/spec_decode/ngram_proposer.py`, which does the same in compiled code.

Differs from vLLM, which takes the earliest of equally long matches. Here the latest one wins.
"""

from engine.core.request import Request


class PromptLookup:
    """A drafter that tries longer matches first; among equally long ones, the latest wins.

    length    maximum number of tokens to propose
    longest   number of tokens in the first match it tries
    shortest  number of tokens in the last match it tries
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
        """Return the tokens after an earlier occurrence of the text's end, or [] if there is none.

        The latest occurrence with `length` tokens after it wins. In a text with a short period, the
        very latest occurrence has fewer tokens after it and would propose only one repetition.
        """
        tokens = request.tokens
        for size in range(min(self.longest, len(tokens) - 1), self.shortest - 1, -1):
            end = tokens[-size:]
            proposal: list[int] = []
            for start in range(len(tokens) - size - 1, -1, -1):
                if tokens[start : start + size] == end:
                    proposal = tokens[start + size : start + size + self.length]
                    if len(proposal) == self.length:
                        break
            if proposal:
                return proposal
        return []
