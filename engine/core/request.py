"""A request: its tokens, how many of them are computed, and which blocks hold their KV.

There is no prefill state and no decode state. A request has tokens that are not computed yet, and
each step computes some of them. When all of them are computed, the request gets its next token. vLLM
counts the same way, with `num_computed_tokens` and `num_tokens` (`vllm/v1/request.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from engine.core.sampling_params import SamplingParams


class Constraint(Protocol):
    """What the output of one sample must match; see `engine/extensions/grammars/constraint.py`.

    end_ids  tokens that may end the output
    error    why the output cannot match any more, or ""
    misread  whether the error is the engine's own, and not that of the grammar
    """

    end_ids: frozenset[int]
    error: str
    misread: bool

    def fork(self) -> "Constraint":
        """Return a constraint for another sample, which reads its output from the beginning."""

    def mask(self, output: list[int]) -> int:
        """Return the tokens that may follow `output`: bit i is 1 if token i is allowed."""

    def draft_mask(self, output: list[int]) -> int:
        """Return `mask` for an output that ends with drafts."""

    def is_complete(self, output: list[int]) -> bool:
        """Return whether only an end token can follow `output`, or `output` ends with one."""

    def forced(self, output: list[int]) -> list[int]:
        """Return the tokens that must follow `output`, up to the next choice; usually none."""

    def count_allowed(self, output: list[int], drafts: Sequence[int]) -> int:
        """Return how many of the drafts are allowed after `output`, without end tokens."""


class TokenScore(NamedTuple):
    """The natural logarithm of the probability of a prompt token.

    `top` has the most likely tokens at its position and their log-probabilities, most likely first.
    `SamplingParams.prompt_logprobs` sets their number. `rank` is 1 for the most likely token of the
    vocabulary; tokens that are equally likely count as more likely.
    """

    logprob: float
    top: list[tuple[int, float]]
    rank: int = 1


@dataclass(slots=True, eq=False)
class Request:
    """One sample of one prompt, from submission until it finishes.

    id                   unique in a run; sample s of the request with id r has id r + s
    tokens               prompt, then output
    texts                one piece of text per token; joined, the pieces are the full text
    extra_key            adapter and salt, if it has one of them; see `engine/extensions/prefix_keys.py`
    root                 the id of the request it forked from, or its own id if it did not fork
    seed                 of its random numbers: `params.seed`, or its root if the caller set none
    num_computed_tokens  leading tokens whose KV is in the request's blocks
    num_in_flight_tokens     the following tokens, whose KV scheduled steps are still computing
    num_output_placeholders  output tokens that those steps will add; their positions are known,
                             but their ids are not yet. Without asynchronous scheduling, both
                             counts are 0 whenever a step is scheduled
    block_table          KV blocks: token p is in block_table[p // block_size]
    last_node            the deepest radix node of the request's locked path; 0, the root, means
                         that it holds no lock
    num_seqs             seats in the batch: n until it forks, then 1
    preemptions          how often the request was preempted
    delivered            one piece of text per output token, as the client gets it: text that may
                         become a stop string is held back, and a stop string is left out
    end_ids              tokens that end the output
    constraint           which tokens may come next, if `params.structured` asks for a format
    bad_word_ids         the token sequences of `params.bad_words`
    logprobs             log-probability of each output token, 0.0 for a forced one
    num_forced_tokens    output tokens that a tool or the grammar forced
    top_logprobs         the most likely tokens at each output position, if asked for
    prompt_scores        scores of the prompt's tokens from the second on, if asked for
    error                why the request ended with the finish reason "error", or ""
    error_field          the field of `params` that caused `error`, or "" if the engine is at fault
    """

    id: int
    tokens: list[int]
    texts: list[str]
    params: SamplingParams
    label: str = ""
    priority: int = 0
    extra_key: tuple[str, ...] = ()
    root: int = -1
    seed: int = 0
    sample: int = 0
    prompt_length: int = 0
    num_computed_tokens: int = 0
    num_in_flight_tokens: int = 0
    num_output_placeholders: int = 0
    block_table: list[int] = field(default_factory=list)
    last_node: int = 0
    num_seqs: int = 1
    preemptions: int = 0
    delivered: list[str] = field(default_factory=list)
    end_ids: frozenset[int] = frozenset()
    constraint: Constraint | None = None
    bad_word_ids: tuple[tuple[int, ...], ...] = ()
    logprobs: list[float] = field(default_factory=list)
    num_forced_tokens: int = 0
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    prompt_scores: list[TokenScore] = field(default_factory=list)
    finish_reason: str | None = None
    error: str = ""
    error_field: str = ""

    def fork(self, sample: int) -> "Request":
        """Return another sample of the same prompt, without blocks."""
        return Request(
            id=self.root + sample,
            tokens=self.tokens[:],  # with their key
            texts=list(self.texts),
            params=self.params,
            label=self.label,
            priority=self.priority,
            extra_key=self.extra_key,
            root=self.root,
            seed=self.seed,
            sample=sample,
            prompt_length=self.prompt_length,
            end_ids=self.end_ids,
            constraint=self.constraint and self.constraint.fork(),
            bad_word_ids=self.bad_word_ids,
            prompt_scores=self.prompt_scores,
        )

    @property
    def num_uncomputed_tokens(self) -> int:
        """The number of tokens whose KV is not computed yet."""
        return len(self.tokens) - self.num_computed_tokens

    @property
    def num_scheduled_tokens(self) -> int:
        """The number of leading tokens that are computed or being computed."""
        return self.num_computed_tokens + self.num_in_flight_tokens

    @property
    def num_unscheduled_tokens(self) -> int:
        """The number of tokens that a step may compute next, a placeholder included.

        It is 0 if the next token is certainly the last one, because its KV is not needed, and 0 if
        the samples have yet to fork.
        """
        length = len(self.tokens) + self.num_output_placeholders
        if self.num_output_placeholders and (
            length - self.prompt_length >= self.params.max_tokens or self.num_seqs > 1
        ):
            return 0
        return length - self.num_computed_tokens - self.num_in_flight_tokens

    def forget_in_flight(self) -> None:
        """Reset the counts of tokens in flight, because the request has lost its blocks."""
        self.num_in_flight_tokens = self.num_output_placeholders = 0

    @property
    def unscored(self) -> int:
        """The number of prompt tokens that `prompt_logprobs` asks for and that have no score yet."""
        if self.params.prompt_logprobs is None:
            return 0
        return self.prompt_length - 1 - len(self.prompt_scores)

    @property
    def output_ids(self) -> list[int]:
        """The tokens after the prompt."""
        return self.tokens[self.prompt_length :]

    @property
    def output_text(self) -> str:
        """The text after the prompt, as the client gets it."""
        return "".join(self.delivered)
