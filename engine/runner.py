"""What the step loop asks of a model: one forward pass over a flat batch of tokens.

The loop does not know torch. A Runner that computes (`compute/torch_runner.py`), one that only
pretends and moves a virtual clock, and one that checks every read against what was written are the
same to it. vLLM draws this line at its model runner (`vllm/v1/worker/gpu_model_runner.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.scheduling.request import Request, TokenScore


@dataclass(slots=True)
class Row:
    """One request's part of the batch: compute KV for positions `start .. start + count`.

    The tokens at those positions are `request.tokens[start:]`, followed by `drafts`. The KV of
    position p lives in slot `p % block_size` of block `request.block_table[p // block_size]`. `samples`
    lists the sample indexes that want a next token: none while the row has not caught up,
    `[request.sample]` usually, `[0 .. n-1]` when a prompt with n samples is complete.

    A runner with a model fills `scores` where `scored` is not 0.
    """

    request: Request
    start: int
    count: int
    drafts: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    scores: list[TokenScore] = field(default_factory=list)

    @property
    def scored(self) -> int:
        """How many prompt tokens, from `start + 1` on, this row has to score.

        The logits at a position tell the probability of the token after it, so the prompt's last
        position scores none, and its first token is scored by nobody.
        """
        request = self.request
        if not request.unscored:
            return 0
        return max(0, min(self.start + self.count, request.prompt_length - 1) - self.start)

    def token_ids(self) -> list[int]:
        """The row's input tokens, drafts included, `count` of them."""
        known = self.start + self.count - len(self.drafts)
        return self.request.tokens[self.start : known] + self.drafts


@dataclass(slots=True)
class Sampled:
    """What one sample of a row gained: the drafts that were accepted, then one sampled token.

    `logprobs` has each id's log-probability, `top` the likeliest tokens in its place, where the
    request asks for them; see `SamplingParams.logprobs` and `TokenScore`.
    """

    ids: list[int]
    logprobs: list[float]
    top: list[list[tuple[int, float]]] = field(default_factory=list)


class Runner(Protocol):
    """A model, seen from the step loop.

    `max_context` is the longest sequence the model can read, None for no limit.
    """

    max_context: int | None

    def describe(self) -> dict[str, Any]:
        """A summary of the model for the log's first event: JSON values only."""
        ...

    def reserve(self, num_blocks: int, block_size: int) -> None:
        """Make room for the KV cache. Called once, before the first `run`."""
        ...

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        """Copy blocks (source, destination), then compute all rows in one forward pass.

        Returns, for each row, one `Sampled` per entry of `row.samples`. Without rows there is no
        forward pass: the engine runs copies first, in calls of their own. An exception ends the
        requests of the step, not the engine.
        """
        ...
