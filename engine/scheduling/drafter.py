"""A drafter guesses the next tokens; the model checks several guesses in one forward pass.

A decode reads the whole model for one token; a few tokens more in the same pass cost little. So they
are guessed, and kept as far as the model would have said them itself (`compute/verification.py`).

Source: speculative decoding (arXiv:2211.17192); vLLM's drafters are in `vllm/v1/spec_decode/`.
"""

from typing import Protocol

from engine.cache.kv_cache import KVCache
from engine.part_errors import DrafterError, ask, checked_ids
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
    """Takes as many of a drafter's guesses into a step as cost nobody anything."""

    def __init__(self, drafter: Drafter | None, cache: KVCache, vocab_size: int) -> None:
        self._drafter = drafter
        self._cache = cache
        self._vocab_size = vocab_size

    def drafts(self, request: Request, count: int, budget: int) -> list[int]:
        """Drafts for a request that computes `count` tokens in this step; none unless it catches up.

        They take what is left of the `budget`, in tokens, and blocks that are free, and never reach
        beyond max_tokens: the sampled token needs the last place. Raises DrafterError.
        """
        if self._drafter is None or count < request.uncomputed or request.slots > 1:
            return []
        output_left = request.params.max_tokens - (len(request.tokens) - request.prompt_length)
        most = min(budget, output_left - 1)
        proposed = ask(DrafterError, self._drafter.propose, request)
        drafts = checked_ids(DrafterError, self._drafter, "propose", proposed, self._vocab_size)
        drafts = drafts[: max(0, most)]
        while drafts:
            more = self._cache.blocks_needed(request, count + len(drafts))
            if more <= len(self._cache.pool.free):
                break
            drafts.pop()
        return drafts
