"""Victim orders that are proposed for vLLM, each as a policy: which request gives back its blocks.

`underglass bench` knows them by name. vLLM itself preempts the request that was admitted last
(`_preempt_request` in `vllm/v1/core/sched/scheduler.py`), as `Policy.victim` does.
"""

from collections import Counter
from collections.abc import Sequence

from engine.core.request import Request
from engine.core.scheduling.policies import POLICIES
from engine.core.scheduling.policy import Policy


class LeastComputedFirst(Policy):
    """Preempt the request with the fewest computed tokens, because those are what is lost.

    Source: vllm-project/vllm issue 54644 and pull request 53723, open in September 2026.
    """

    name = "lcf"

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:
        """Return the request with the fewest computed tokens; ties go to the earliest admission."""
        return min(running, key=lambda request: request.num_computed_tokens)


class CostAware(Policy):
    """Preempt the request that frees the most blocks for the least work and is far from its end.

    The score is own blocks / tokens * (1 - output tokens / max_tokens). A block is a request's own if
    no other running request has it in its table.

    Source: vllm-project/vllm pull request 56897, open in September 2026.
    """

    name = "cost_aware"

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:
        """Return the request with the highest score; ties go to the earliest admission."""
        holders = Counter(block for request in running for block in request.block_table)

        def score(request: Request) -> float:
            own = sum(holders[block] == 1 for block in request.block_table)
            tokens = len(request.tokens)
            progress = (tokens - request.prompt_length) / max(1, request.params.max_tokens)
            return own / max(1, tokens) * (1 - progress)

        return max(running, key=score)


PROPOSALS: dict[str, type[Policy]] = {one.name: one for one in (LeastComputedFirst, CostAware)}
KNOWN = POLICIES | PROPOSALS
