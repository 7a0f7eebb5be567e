"""The built-in policies, by name. `policy.py` describes what a policy decides.

vLLM has fcfs and priority (`vllm/v1/core/sched/request_queue.py`); SGLang has fcfs, lpm and more
(`python/sglang/srt/managers/schedule_policy.py`); fair is in `fairness.py`.
"""

from collections.abc import Sequence

from engine.core.cache.prefix_cache import PrefixLookup
from engine.core.request import Request
from engine.core.scheduling.fairness import Fair
from engine.core.scheduling.policy import Policy


class Fcfs(Policy):
    """First come, first served."""


class Priority(Policy):
    """Smallest priority value first; ties go to the earliest arrival, as in vLLM."""

    name = "priority"

    def key(self, request: Request, tree: PrefixLookup) -> tuple[float, ...]:
        """Return (priority, arrival)."""
        return (request.priority, request.id)

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:
        """Return the request with the largest priority value; ties go to the latest arrival."""
        return max(running, key=lambda request: (request.priority, request.id))


class ShortestJobFirst(Policy):
    """Least work first, with `max_tokens` as the estimated length of the output.

    This minimizes the mean waiting time. A long request may starve while short ones keep coming.
    """

    name = "sjf"

    def key(self, request: Request, tree: PrefixLookup) -> tuple[float, ...]:
        """Return (prompt tokens + max_tokens)."""
        return (request.prompt_length + request.params.max_tokens,)


class LongestPrefixMatch(Policy):
    """Longest cached prefix first, so a prefix is used before it is evicted (SGLang).

    A prefix is computed only once: if another request is about to compute at least
    `worth_waiting_for` tokens that this request could reuse, this request waits until those tokens
    are in the cache.

    Differs from SGLang, which compares only waiting requests with each other and moves a deferred
    request to the end of the queue. Here a request also waits for a running request that computes
    the shared prefix. Both engines stop sorting above 128 waiting requests, because computing a key
    takes a walk through the tree.
    """

    name = "lpm"
    keys_change = True
    sort_limit = 128
    worth_waiting_for = 32  # tokens

    def key(self, request: Request, tree: PrefixLookup) -> tuple[float, ...]:
        """Return (minus the number of cached blocks)."""
        return (-_cached_blocks(request, tree),)

    def defer(self, request: Request, tree: PrefixLookup, computing: Sequence[Request]) -> bool:
        """Return whether one of `computing` will compute a long enough prefix of this request."""
        if not tree.enabled or request.params.prompt_logprobs is not None:
            return False  # a cached prefix would be of no use to this request
        size = tree.block_size
        limit = (len(request.tokens) - 1) // size
        cached = _cached_blocks(request, tree)
        return any(
            (shared - cached) * size >= self.worth_waiting_for
            and shared * size > other.num_computed_tokens
            for other in computing
            if (shared := _shared_blocks(request, other, limit, size)) > cached
        )


def _cached_blocks(request: Request, tree: PrefixLookup) -> int:
    limit = (len(request.tokens) - 1) // tree.block_size
    return len(tree.match(request.tokens, limit).blocks)


def _shared_blocks(one: Request, other: Request, limit: int, size: int) -> int:
    """Count the leading blocks that both requests share, at most `limit`."""
    if one.extra_key != other.extra_key:
        return 0  # another adapter or salt
    most = min(limit, len(other.tokens) // size)
    for block in range(most):
        start = block * size
        if one.tokens[start : start + size] != other.tokens[start : start + size]:
            return block
    return most


POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Fcfs, Priority, ShortestJobFirst, LongestPrefixMatch, Fair)
}
