"""The policies that come with the engine, by name. `policy.py` says what a policy decides.

vLLM has fcfs and priority (`vllm/v1/core/sched/request_queue.py`), SGLang fcfs, lpm and more
(`python/sglang/srt/managers/schedule_policy.py`); fair is in `fairness.py`.
"""

from collections.abc import Sequence

from engine.cache.radix_tree import RadixTree
from engine.config import ConfigError
from engine.scheduling.fairness import Fair
from engine.scheduling.policy import Policy
from engine.scheduling.request import Request

__all__ = [
    "POLICIES",
    "Fair",
    "Fcfs",
    "LongestPrefixMatch",
    "Policy",
    "Priority",
    "ShortestJobFirst",
    "policy_named",
]


class Fcfs(Policy):
    """First come, first served."""


class Priority(Policy):
    """The most urgent first: priority 0 before 1; equals in order of arrival, as vLLM does it."""

    name = "priority"

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:  # noqa: ARG002
        """(priority, arrival)."""
        return (request.priority, request.id)

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:  # noqa: ARG002
        """The least urgent; of those the last to arrive."""
        return max(running, key=lambda request: (request.priority, request.id))


class ShortestJobFirst(Policy):
    """The least work first, taking `max_tokens` as the length of the answer.

    Best for the mean wait; a long request may starve while short ones keep coming.
    """

    name = "sjf"

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:  # noqa: ARG002
        """(prompt tokens + output tokens asked for)."""
        return (request.prompt_length + request.params.max_tokens,)


class LongestPrefixMatch(Policy):
    """The longest cached prefix first, so that a prefix is used while it is still there (SGLang).

    And a prefix is computed once: whoever could take it from the cache after another has computed it
    is put off until then. SGLang does so for 32 tokens and more, only between requests that wait, and
    asks those it puts off last; here they wait for as long as that other really computes it.

    Every key is a walk through the tree, hence the limit; SGLang falls back at 128 as well.
    """

    name = "lpm"
    keys_change = True
    sort_limit = 128
    worth_waiting_for = 32  # tokens

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:
        """(minus the number of cached blocks)."""
        return (-_cached_blocks(request, tree),)

    def defer(self, request: Request, tree: RadixTree, computing: Sequence[Request]) -> bool:
        """Whether one of `computing` is about to compute enough of what this request needs."""
        if not tree.enabled or request.params.prompt_logprobs is not None:
            return False  # it could not use what the other computes
        size = tree.block_size
        limit = (len(request.tokens) - 1) // size
        cached = _cached_blocks(request, tree)
        return any(
            (shared - cached) * size >= self.worth_waiting_for
            and shared * size > other.num_computed_tokens
            for other in computing
            if (shared := _shared_blocks(request, other, limit, size)) > cached
        )


def _cached_blocks(request: Request, tree: RadixTree) -> int:
    limit = (len(request.tokens) - 1) // tree.block_size
    return len(tree.match(request.tokens, limit).blocks)


def _shared_blocks(one: Request, other: Request, limit: int, size: int) -> int:
    """Whole blocks with which both begin, at most `limit`."""
    most = min(limit, len(other.tokens) // size)
    for block in range(most):
        start = block * size
        if one.tokens[start : start + size] != other.tokens[start : start + size]:
            return block
    return most


POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Fcfs, Priority, ShortestJobFirst, LongestPrefixMatch, Fair)
}


def policy_named(name: str) -> Policy:
    """A new policy by its name. Raises ConfigError for a name that is not one of `POLICIES`."""
    if name not in POLICIES:
        raise ConfigError(f"policy must be one of {', '.join(POLICIES)}, got {name!r}")
    return POLICIES[name]()
