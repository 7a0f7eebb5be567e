"""A request: the tokens it has, how many of them are computed, and which KV blocks hold them.

There is no "prefill state" and no "decode state". A request has tokens that are not computed yet,
and each step computes some; whoever has caught up gets a next token. vLLM counts the same two
numbers, `num_computed_tokens` and `num_tokens` (`vllm/v1/request.py`).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from engine.scheduling.sampling_params import SamplingParams


class TokenScore(NamedTuple):
    """How probable a model found a token of the prompt: its natural logarithm.

    `top` has the likeliest tokens in its place with theirs, most probable first, as many as
    `SamplingParams.prompt_logprobs` asks for.
    """

    logprob: float
    top: list[tuple[int, float]]


@dataclass(slots=True, eq=False)
class Request:
    """One sample of one prompt, alive from submission until it finishes.

    id             unique in a run; sample s of the request with id r has id r + s
    tokens         prompt, then output
    texts          one piece of text per token; joined they are the text
    delivered      pieces of the output as its reader gets them, one per output token: held back while
                   they may become a stop string, and without it
    end_ids        tokens that end the output
    num_computed_tokens  leading tokens whose KV is in the request's blocks
    block_table    the KV blocks: token p lives in block_table[p // block_size]
    last_node      radix node up to which the request's path is locked; 0, the root, is none
    num_seqs       places in the batch it takes: n until it forks, then 1
    preemptions    how often it was preempted
    logprobs       natural logarithm of each output token's probability; 0.0 for forced ones, of which
                   there are `num_forced_tokens`
    top_logprobs   the likeliest tokens in each one's place, where they were asked for
    prompt_scores  of the prompt's tokens from the second on, where they were asked for
    """

    id: int
    tokens: list[int]
    texts: list[str]
    params: SamplingParams
    label: str = ""
    priority: int = 0
    root: int = -1
    sample: int = 0
    prompt_length: int = 0
    num_computed_tokens: int = 0
    block_table: list[int] = field(default_factory=list)
    last_node: int = 0
    num_seqs: int = 1
    preemptions: int = 0
    delivered: list[str] = field(default_factory=list)
    end_ids: frozenset[int] = frozenset()
    logprobs: list[float] = field(default_factory=list)
    num_forced_tokens: int = 0
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    prompt_scores: list[TokenScore] = field(default_factory=list)
    finish_reason: str | None = None
    error: str = ""

    def fork(self, sample: int) -> "Request":
        """Sample `sample` of the same prompt: it begins where this one is, with no blocks yet."""
        return Request(
            id=self.root + sample,
            tokens=list(self.tokens),
            texts=list(self.texts),
            params=self.params,
            label=self.label,
            priority=self.priority,
            root=self.root,
            sample=sample,
            prompt_length=self.prompt_length,
            end_ids=self.end_ids,
            prompt_scores=self.prompt_scores,
        )

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens whose KV is still to be computed."""
        return len(self.tokens) - self.num_computed_tokens

    @property
    def unscored(self) -> int:
        """Tokens of the prompt that are still to be scored, because `prompt_logprobs` asks for it."""
        if self.params.prompt_logprobs is None:
            return 0
        return self.prompt_length - 1 - len(self.prompt_scores)

    @property
    def output_ids(self) -> list[int]:
        """The tokens after the prompt."""
        return self.tokens[self.prompt_length :]

    @property
    def output_text(self) -> str:
        """The text after the prompt, as its reader gets it."""
        return "".join(self.delivered)

    @property
    def seed(self) -> int:
        """The seed of its random numbers; see `SamplingParams.seed`."""
        return self.root if self.params.seed is None else self.params.seed
