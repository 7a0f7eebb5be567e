"""A request: the tokens it has, how many of them are computed, and which KV blocks hold them.

There is no "prefill state" and no "decode state". A request has tokens that are not computed yet,
and each step computes some; whoever has caught up gets a next token. vLLM counts the same two
numbers, `num_computed_tokens` and `num_tokens` (`vllm/v1/request.py`).
"""

from dataclasses import dataclass, field

from engine.scheduling.sampling_params import SamplingParams


@dataclass(slots=True, eq=False)
class Request:
    """One sample of one prompt, alive from submission until it finishes.

    id             unique in a run; sample s of the request with id r has id r + s
    tokens         prompt, then output
    texts          one piece of text per token; joined they are the text
    computed       leading tokens whose KV is in the request's blocks
    table          block table: token p lives in block table[p // block_size]
    lock           radix node up to which the request's path is locked; 0, the root, is none
    slots          places in the batch it takes: n until it forks, then 1
    preemptions    how often it was preempted
    logprobs       natural logarithm of each sampled token's probability; 0.0 for forced ones
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
    computed: int = 0
    table: list[int] = field(default_factory=list)
    lock: int = 0
    slots: int = 1
    preemptions: int = 0
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    error: str = ""

    @property
    def uncomputed(self) -> int:
        """Tokens whose KV is still to be computed."""
        return len(self.tokens) - self.computed

    @property
    def output_ids(self) -> list[int]:
        """The tokens after the prompt."""
        return self.tokens[self.prompt_length :]

    @property
    def output_text(self) -> str:
        """The text after the prompt."""
        return "".join(self.texts[self.prompt_length :])

    @property
    def seed(self) -> int:
        """The seed of its random numbers; see `SamplingParams.seed`."""
        return self.root if self.params.seed is None else self.params.seed
