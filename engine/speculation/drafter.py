"""A drafter guesses the next tokens; the model checks several guesses in one forward pass.

A decode reads the whole model for one token; a few tokens more in the same pass cost little. So they
are guessed, and kept as far as the model would have said them itself (`speculation/verification.py`).

Source: speculative decoding (arXiv:2211.17192); vLLM's drafters are in `vllm/v1/spec_decode/`.
"""

from typing import Protocol

from engine.cache.kv_cache_manager import KVCacheManager
from engine.part_errors import DrafterError, ask, checked_ids
from engine.runner import Row
from engine.scheduling.request import Request


class Drafter(Protocol):
    """Proposes tokens for a request that has caught up. See arXiv:2211.17192 for why it is exact."""

    def propose(self, request: Request) -> list[int]:
        """Tokens that may follow `request.tokens`; [] when there is nothing to guess.

        A wrong guess costs computation and changes no token. Of a long list the beginning is taken,
        as much as budget and memory allow. `request` is only read.
        """
        ...


class Speculation:
    """Adds drafts to a step's rows, from what the step leaves over.

    It is asked last, when running requests have their next tokens and waiting ones are admitted. So
    drafts change nothing else that a step decides: they delay, preempt and evict no request or block.
    They are not free: the forward pass computes them, so the step takes longer for all of its rows,
    and a request whose drafts are accepted needs its next blocks sooner.

    vLLM schedules a request's drafts together with its next token, before the requests behind it
    (`num_tokens_with_spec` in `vllm/v1/core/sched/scheduler.py`): there drafts compete for the budget,
    and may evict and preempt.
    """

    def __init__(self, drafter: Drafter | None, cache: KVCacheManager, vocab_size: int) -> None:
        self._drafter = drafter
        self._cache = cache
        self._vocab_size = vocab_size

    def drafts(self, row: Row, budget: int) -> list[int]:
        """Drafts to append to a row; none unless its request catches up in this step.

        They take what is left of the `budget`, in tokens, and blocks that are free, and never reach
        beyond max_tokens: the sampled token needs the last place. Raises DrafterError.
        """
        request = row.request
        if self._drafter is None or budget == 0 or len(row.samples) != 1:
            return []
        output_left = request.params.max_tokens - (len(request.tokens) - request.prompt_length)
        most = min(budget, output_left - 1)
        proposed = ask(DrafterError, self._drafter.propose, request)
        drafts = checked_ids(DrafterError, self._drafter, "propose", proposed, self._vocab_size)
        drafts = drafts[: max(0, most)]
        while drafts:
            more = self._cache.blocks_needed(request, row.count + len(drafts))
            if more <= len(self._cache.pool.free):
                break
            drafts.pop()
        return drafts
