"""A drafter guesses the next tokens; the model checks several guesses in one forward pass.

A decode step reads the whole model to produce one token; a few more tokens in the same pass cost
little. So a drafter guesses them, and a guess is kept as long as the model agrees with it
(`speculation/verification.py`).

Source: speculative decoding (arXiv:2211.17192); vLLM's drafters are in `vllm/v1/spec_decode/`.

Differs from vLLM: drafts use only the budget and blocks that a step leaves over, so they never delay or
preempt a request, or evict a block. vLLM schedules a request's drafts together with its next token,
before the requests behind it (`num_tokens_with_spec` in `vllm/v1/core/sched/scheduler.py`), so drafts
compete for the token budget and may cause evictions and preemptions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.config import EngineConfig
from engine.core.request import Request
from engine.core.runner import PageStore, Row, Sampled


class Drafter(Protocol):
    """Proposes tokens for a request whose known tokens are all scheduled.

    `DraftModel` drafts for all requests at once, right after the previous step, and its `propose` only
    looks up the result.
    """

    def propose(self, request: Request) -> list[int]:
        """Return tokens that may follow `request.tokens`, or [] if there is nothing to guess.

        A wrong guess costs computation but changes no token. A long list is cut to what the budget
        and memory allow. `request` must not be changed.
        """


@runtime_checkable
class FollowingDrafter(Drafter, Protocol):
    """A drafter with KV of its own, which follows every forward pass.

    See `engine/extensions/draft_model.py`.
    """

    @property
    def is_off(self) -> bool:
        """Whether drafting is switched off."""

    def reserve(self, config: EngineConfig, vocab_size: int) -> None:
        """Allocate KV memory."""

    def describe(self) -> dict[str, Any]:
        """Return a summary for the log's first event."""

    def paired(self, target: PageStore) -> PageStore:
        """Return the pages of the target and of this drafter together."""

    def copy(self, source: int, destination: int) -> None:
        """Copy a block, as the target does."""

    def follow(self, rows: Sequence[Row], sampled: Sequence[Sequence[Sampled]]) -> str:
        """Compute the rows of a step and the next drafts. Return an error, or ""."""


@dataclass(slots=True)
class Speculation:
    """Adds drafts to a step's rows, using the budget and blocks that the step leaves over.

    The scheduler calls `drafts` last, after running requests have their next tokens and waiting
    requests are admitted, so drafts change no other decision of a step. Drafts are not free: the
    forward pass computes them, so the step takes longer for all of its rows, and a request whose
    drafts are accepted needs its next blocks sooner.
    """

    _drafter: Drafter
    _cache: KVCacheManager

    def drafts(self, row: Row, budget: int) -> list[int]:
        """Return drafts to append to a row, or none unless its request catches up in this step.

        The drafts fit in the remaining `budget` (in tokens) and in the free blocks, and stay below
        max_tokens, because the sampled token counts, too. Drafts that a grammar forbids are cut.
        Raises DrafterError.
        """
        request = row.request
        if budget == 0 or len(row.samples) != 1:
            return []
        output_left = request.params.max_tokens - (len(request.tokens) - request.prompt_length)
        drafts = self._drafter.propose(request)
        if request.constraint is not None:  # forbidden drafts could never be accepted
            drafts = drafts[: request.constraint.count_allowed(request.output_ids, drafts)]
        drafts = drafts[: max(0, min(budget, output_left - 1))]
        free = len(self._cache.pool.free)
        while drafts and self._cache.blocks_needed(request, row.count + len(drafts)) > free:
            drafts.pop()
        return drafts
