"""What the step loop asks of a model: one forward pass over a flat batch of tokens.

The loop does not know torch. A Runner that computes (`compute/torch_runner.py`), one that only
pretends and moves a virtual clock, and one that checks every read against what was written are the
same to it. vLLM draws this line at its model runner (`vllm/v1/worker/gpu_model_runner.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.scheduling.request import Request


@dataclass(slots=True)
class Row:
    """One request's part of the batch: compute KV for positions `start .. start + count`.

    The tokens at those positions are `request.tokens[start:]`, followed by `drafts`. The KV of
    position p lives in slot `p % block_size` of block `request.table[p // block_size]`. `samples`
    lists the sample indexes that want a next token: none while the row has not caught up,
    `[request.sample]` usually, `[0 .. n-1]` when a prompt with n samples is complete.
    """

    request: Request
    start: int
    count: int
    drafts: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)

    def token_ids(self) -> list[int]:
        """The row's input tokens, drafts included, `count` of them."""
        known = self.start + self.count - len(self.drafts)
        return self.request.tokens[self.start : known] + self.drafts


@dataclass(slots=True)
class Sampled:
    """What one sample of a row gained: the drafts that were accepted, then one sampled token.

    `logprobs` are natural logarithms of each id's probability under the model's own distribution,
    before temperature and cuts.
    """

    ids: list[int]
    logprobs: list[float]


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

        Returns, for each row, one `Sampled` per entry of `row.samples`. An exception ends the
        requests of the step, not the engine.
        """
        ...
