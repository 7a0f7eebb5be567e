"""A constraint: the tokens that may come next, so that the output keeps its shape.

The state of a grammar depends on the output's tokens and on nothing else. So a constraint keeps a
matcher and the tokens that the matcher has read. When it is asked about an output, it rolls the
matcher back to the last common token and reads the rest:

    read    {  "  a  n          rolled back by 1, then read 2
    asked   {  "  a  g  e       mask: only  "

For that reason, other features need no special case. A chunk of a prompt chooses no token, so it asks
nothing. The samples of a prompt share the first state, and each fork reads its own output. A preempted
request loses its KV but keeps its tokens. Drafts are a longer output, which is rolled back when they
are rejected, and an error that they caused is forgotten with them. With asynchronous scheduling,
earlier tokens are appended before the forward pass that needs the mask starts.

Source: vLLM's `GuidanceGrammar` (`vllm/v1/structured_output/backend_guidance.py`), which accepts,
validates and rolls back tokens as the scheduler tells it to.

Differs from vLLM: the mask is computed by the sampler, not while the model computes the logits. An
output ends as soon as only an end token could follow; in vLLM the model still samples that token.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.extensions.grammars.limits import NO_TOKEN, is_of_lexer, reason_of


class Matcher(Protocol):
    """A grammar and its state: the part of llguidance's `LLMatcher` that is used here."""

    def deep_copy(self) -> "Matcher":
        """Return a copy with a state of its own."""

    def try_consume_tokens(self, tokens: list[int]) -> int:
        """Read tokens up to the first one that is not allowed; return how many were read."""

    def validate_tokens(self, tokens: list[int]) -> int:
        """Return how many tokens could be read now."""

    def rollback(self, num_tokens: int) -> bool:
        """Undo the last tokens; return False if that is impossible, because of an error."""

    def compute_bitmask(self) -> bytes:
        """Return the mask: bit `i % 8` of byte `i // 8` is 1 if token i is allowed."""

    def compute_ff_tokens(self) -> list[int]:
        """Return the tokens that must come next, as far as there is no choice."""

    def get_error(self) -> str:
        """Return the error after which nothing can be read any more, usually ""."""


_MAX_FAILURES = 6


class Beginning:
    """The state of a request's grammar before an output, which the request's samples copy.

    The copies share llguidance's lexer. After one of them has reached a limit of the lexer, all of them
    fail, and some only report that a token does not fit. A draft or another sample may have reached the
    limit, so the grammar is compiled again, and the limit ends a sample whose new copy fails, too. All
    other requests wait meanwhile, so this happens `_MAX_FAILURES` times at most.

    version    changes when all copies have to be replaced
    limit      the limit that ends all samples, usually ""
    is_shared  whether the copies read drafts or the outputs of several samples
    """

    def __init__(self, build: Callable[[], Matcher]) -> None:
        self.version = 0
        self.limit = ""
        self.is_shared = False
        self._build = build
        self._matcher: Matcher | None = build()
        self._num_readers = 0
        self._num_failures = 0

    def add_reader(self) -> None:
        """Note that one more sample reads its output."""
        self._num_readers += 1
        self.is_shared |= self._num_readers > 1

    def copy(self) -> Matcher:
        """Return a matcher that has read nothing."""
        if self._matcher is None:
            self._matcher = self._build()
        return self._matcher.deep_copy()

    def renew(self, limit: str) -> None:
        """Compile the grammar again for the next copy; `limit` is what the lexer reached, if known."""
        self.version += 1
        self._matcher = None
        self._num_failures += bool(limit)
        if self._num_failures == _MAX_FAILURES:
            self.limit = limit


class GrammarConstraint:
    """The shape of one sample's output, and where in it the output is.

    beginning   the grammar before an output; the samples of a request share it
    end_ids     the model's end tokens: allowed where the grammar may end
    ignore_eos  do not allow an end token as long as anything else is allowed
    error       why no token may follow the output that was asked about last, usually "". It says
                nothing about other outputs: a draft that cannot go on is rejected like any other
    misread     the error is a token that does not fit: the engine's mistake, not the grammar's
    """

    def __init__(self, beginning: Beginning, end_ids: frozenset[int], *, ignore_eos: bool) -> None:
        self.error = ""
        self.misread = False
        self.end_ids = end_ids
        self._beginning = beginning
        self._version = -1  # of the beginning, when the matcher was copied; -1 before the first use
        self._matcher: Matcher
        self._end_bits = sum(1 << token for token in end_ids)
        self._ignore_eos = ignore_eos
        self._tokens: list[int] = []  # what the matcher has read
        self._mask = 0  # of the state after them; 0 means that it is not computed yet

    def fork(self) -> "GrammarConstraint":
        """Return a constraint for another sample, which reads its output from the beginning."""
        return GrammarConstraint(self._beginning, self.end_ids, ignore_eos=self._ignore_eos)

    @property
    def takes_drafts(self) -> bool:
        """Whether drafts may be read; not after a limit of the lexer, which they might reach again."""
        return not self._beginning.version

    def mask(self, output: list[int]) -> int:
        """Return the tokens that may follow `output`: bit i is 1 if token i is allowed.

        There is always at least one. If no token can follow, `error` says so, and the end tokens are
        allowed.
        """
        return self._compute_mask(output, again=True)

    def draft_mask(self, output: list[int]) -> int:
        """Return `mask` for an output that ends with drafts; after a limit of the lexer, drafts end."""
        if not self.takes_drafts:
            return self._end_bits
        self._beginning.is_shared = True
        return self._compute_mask(output, again=False)

    def is_complete(self, output: list[int]) -> bool:
        """Return whether only an end token can follow `output`, or `output` ends with one.

        Afterwards `error` is not empty if the output does not have the shape and never will. The mask
        is the one that the next token needs, so it is computed only once.
        """
        if output[-1] in self.end_ids:
            if not self.mask(output[:-1]) & self._end_bits:
                self.error = "the output may not end here"
            return True
        return not self.mask(output) & ~self._end_bits

    def forced(self, output: list[int]) -> list[int]:
        """Return the tokens that must follow `output`, up to the next choice; usually none."""
        self._read(output, again=True)
        return [] if self.error else self._matcher.compute_ff_tokens()

    def count_allowed(self, output: list[int], drafts: Sequence[int]) -> int:
        """Return how many of the drafts the grammar allows after `output`, without end tokens."""
        if not self.takes_drafts:
            return 0
        self._beginning.is_shared = True
        self._read(output, again=True)
        allowed = self._matcher.validate_tokens(list(drafts))
        if allowed < len(drafts) and not self.error:
            self.mask(output)  # only now does the library say that a draft has reached a limit
            if self.error:
                self._restart()  # the next mask tells whether the output has reached it, too
        ends = (i for i, token in enumerate(drafts) if token in self.end_ids)
        return min(allowed, next(ends, allowed))

    def _compute_mask(self, output: list[int], *, again: bool) -> int:
        self._read(output, again=again)
        if self._mask:
            return self._mask
        mask = 0
        if not self.error:
            mask = int.from_bytes(self._matcher.compute_bitmask(), "little")
            error = self._matcher.get_error()
            if is_of_lexer(error) and self._try_again(reason_of(error), again=again):
                return self._compute_mask(output, again=False)
            self.error = reason_of(error)
        if not mask:
            self.error = self.error or NO_TOKEN
        if self._ignore_eos:
            mask = mask & ~self._end_bits or mask
        self._mask = self._end_bits if self.error else mask
        return self._mask

    def _read(self, output: list[int], *, again: bool) -> None:
        """Bring the matcher to its state after `output`, or set `error` if there is none.

        If a lexer fails that others use, read everything `again` with a new one.
        """
        if self._version != self._beginning.version:
            self._restart()
        common = len(self._tokens)
        if output[:common] != self._tokens:
            pairs = zip(self._tokens, output, strict=False)
            common = next((i for i, (a, b) in enumerate(pairs) if a != b), len(output))
            self._roll_back(common)
        elif self.error or common == len(output):
            return  # an output that cannot go on cannot do so with more tokens either
        rest = output[len(self._tokens) :]
        if not rest:
            return
        count = self._matcher.try_consume_tokens(rest)
        self._tokens += rest
        self._mask = 0
        if count == len(rest):
            return
        error = self._matcher.get_error()
        if (is_of_lexer(error) or not error) and self._try_again(reason_of(error), again=again):
            self._read(output, again=False)
            return
        self.misread = not error
        self.error = reason_of(error) or (
            f"token {rest[count]} at position {len(output) - len(rest) + count} of the output "
            "does not fit"
        )

    def _try_again(self, limit: str, *, again: bool) -> bool:
        """Return whether to read again with a new lexer, after this one has failed.

        `limit` is "" if a token does not fit. With a new lexer that is the engine's mistake.
        """
        again = again and self._beginning.is_shared
        if self._version == self._beginning.version and (limit or again):
            self._beginning.renew(limit)
        if again and not self._beginning.limit:
            self._restart()
            return True
        self._version = self._beginning.version
        return False

    def _roll_back(self, length: int) -> None:
        """Go back to the first `length` tokens, or to the beginning.

        A matcher that has reached an error stays there, so a copy of the first state replaces it.
        """
        if self.error or not self._matcher.rollback(len(self._tokens) - length):
            self._restart()
        del self._tokens[length:]
        self._mask = 0

    def _restart(self) -> None:
        if self._version < 0:
            self._beginning.add_reader()
        self._version = self._beginning.version
        self.error = self._beginning.limit
        if not self.error:
            self._matcher = self._beginning.copy()
        self._tokens = []
        self._mask = 0
