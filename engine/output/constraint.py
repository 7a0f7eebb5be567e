"""A constraint: the tokens that may come next, so that the output keeps its shape.

The state of a grammar is a function of the output's tokens, and of nothing else. So a constraint keeps
a matcher and the tokens that it has read. Asked about an output, it rolls the matcher back to
where the two texts part, and reads the rest:

    read    {  "  a  n          rolled back by 1, then read 2
    asked   {  "  a  g  e       mask: only  "

For that reason nothing else needs a special case. A chunk of a prompt has no token to choose and asks
nothing. The samples of a prompt share its first state, and a fork copies it. A preempted request
has lost its KV, but not its tokens. Drafts are an output that goes on for a while, and is rolled
back when they are rejected. With asynchronous scheduling the earlier tokens are appended before the
forward pass starts that needs the mask.

Source: vLLM's `GuidanceGrammar` (`vllm/v1/structured_output/backend_guidance.py`), which accepts,
validates and rolls back tokens as the scheduler tells it to.

Differs from vLLM: the mask is computed by the sampler, not while the model computes the logits. An
output ends as soon as only an end token could follow; in vLLM the model still samples that token.
"""

from collections.abc import Sequence
from typing import Protocol


class Matcher(Protocol):
    """A grammar and its state: the part of llguidance's `LLMatcher` that is used here."""

    def deep_copy(self) -> "Matcher":
        """Return a copy with a state of its own."""
        ...

    def try_consume_tokens(self, tokens: list[int]) -> int:
        """Read tokens up to the first one that is not allowed; return how many were read."""
        ...

    def validate_tokens(self, tokens: list[int]) -> int:
        """Return how many tokens could be read now."""
        ...

    def rollback(self, num_tokens: int) -> bool:
        """Forget the last tokens."""
        ...

    def compute_bitmask(self) -> bytes:
        """Return the mask: bit `i % 8` of byte `i // 8` is 1 if token i is allowed."""
        ...

    def compute_ff_tokens(self) -> list[int]:
        """Return the tokens that must come next, as far as there is no choice."""
        ...

    def is_accepting(self) -> bool:
        """Return whether the output may end here."""
        ...

    def is_stopped(self) -> bool:
        """Return whether no text may follow."""
        ...

    def get_error(self) -> str:
        """Return what went wrong for good, usually ""."""
        ...


class Constraint:
    """The shape of one sample's output, and where in it the output is.

    matcher     the grammar; this constraint owns it
    end_ids     the model's end tokens: allowed where the grammar may end
    ignore_eos  do not allow an end token as long as anything else is allowed
    error       why the output cannot keep its shape any more, usually ""
    """

    def __init__(self, matcher: Matcher, end_ids: frozenset[int], *, ignore_eos: bool) -> None:
        self.error = ""
        self._matcher = matcher
        self._end_ids = end_ids
        self._end_bits = sum(1 << token for token in end_ids)
        self._ignore_eos = ignore_eos
        self._tokens: list[int] = []  # what the matcher has read
        self._mask = 0  # of the state after them; 0 means that it is not computed yet

    def fork(self) -> "Constraint":
        """Return a constraint with the same state for another sample."""
        other = Constraint(self._matcher.deep_copy(), self._end_ids, ignore_eos=self._ignore_eos)
        other._tokens = list(self._tokens)
        return other

    def mask(self, output: list[int]) -> int:
        """Return the tokens that may follow `output`: bit i is 1 if token i is allowed.

        There is always one. If none can follow, `error` says so, and the end tokens are allowed.
        """
        self._read(output)
        if not self._mask:
            mask = int.from_bytes(self._matcher.compute_bitmask(), "little")
            self.error = self.error or _reason(self._matcher)
            if not mask:
                self.error = self.error or "no token can come next"
            if self._ignore_eos:
                mask = mask & ~self._end_bits or mask
            self._mask = self._end_bits if self.error else mask
        return self._mask

    def is_complete(self, output: list[int]) -> bool:
        """Return whether nothing but an end token can follow `output`, or it has one."""
        if output[-1] in self._end_ids:
            return True
        self._read(output)
        if self._matcher.is_stopped():
            return True
        return self._matcher.is_accepting() and not self.mask(output) & ~self._end_bits

    def forced(self, output: list[int]) -> list[int]:
        """Return the tokens that must follow `output`, up to the next choice; usually none."""
        self._read(output)
        return self._matcher.compute_ff_tokens()

    def count_allowed(self, output: list[int], drafts: Sequence[int]) -> int:
        """Return how many of the drafts the grammar allows after `output`, without end tokens."""
        self._read(output)
        allowed = self._matcher.validate_tokens(list(drafts))
        ends = (i for i, token in enumerate(drafts) if token in self._end_ids)
        return min(allowed, next(ends, allowed))

    def _read(self, output: list[int]) -> None:
        """Bring the matcher to its state after `output`."""
        common = len(self._tokens)
        if output[:common] != self._tokens:
            pairs = zip(self._tokens, output, strict=False)
            common = next((i for i, (a, b) in enumerate(pairs) if a != b), len(output))
            self._matcher.rollback(len(self._tokens) - common)
            del self._tokens[common:]
            self._mask = 0
        if common < len(output):
            rest = output[common:]
            count = self._matcher.try_consume_tokens(rest)
            self._tokens += rest[:count]
            self._mask = 0
            if count < len(rest):
                self.error = _reason(self._matcher) or (
                    f"token {rest[count]} at position {common + count} of the output does not fit"
                )


def _reason(matcher: Matcher) -> str:
    """Return what went wrong for good, in one line; usually ""."""
    reason = matcher.get_error().partition("\n")[0]
    return "no token can come next" if reason == "NoExtensionBias" else reason
