"""Policies: who is asked next, and who gives way when memory runs out.

A policy is a small object with two methods. `key` orders the queue: the smallest key is asked first,
and equal keys keep the order of the queue. `victim` picks the running request that is preempted.
Write your own by subclassing `Policy` and pass it in: `Engine(runner, config, policy=Mine())`.

vLLM has fcfs and priority (`vllm/v1/core/sched/request_queue.py`), SGLang fcfs, lpm and more
(`python/sglang/srt/managers/schedule_policy.py`).
"""

from collections.abc import Sequence

from engine.cache.radix_tree import RadixTree
from engine.config import ConfigError
from engine.scheduling.request import Request


class Policy:
    """First come, first served, and the last to come gives way: what both methods do by default.

    keys_change   ask for every key anew in each step, because keys depend on more than the request
    sort_limit    with more requests waiting than this, keep the order of the queue
    """

    name = "fcfs"
    keys_change = False
    sort_limit: int | None = None

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:  # noqa: ARG002
        """The request's place in the queue: smaller goes first. `tree` may be searched freely."""
        return ()

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:  # noqa: ARG002
        """The one of `running` to preempt so that `needed_by` gets blocks; it may be itself.

        `running` is in order of admission and never empty.
        """
        return running[-1]


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

    Every key is a walk through the tree, hence the limit; SGLang falls back at 128 as well.
    """

    name = "lpm"
    keys_change = True
    sort_limit = 128

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:
        """(minus the number of cached blocks)."""
        limit = (len(request.tokens) - 1) // tree.block_size
        return (-len(tree.match(request.tokens, limit).blocks),)


POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Fcfs, Priority, ShortestJobFirst, LongestPrefixMatch)
}


def policy_named(name: str) -> Policy:
    """A new policy by its name. Raises ConfigError for a name that is not one of `POLICIES`."""
    if name not in POLICIES:
        raise ConfigError(f"policy must be one of {', '.join(POLICIES)}, got {name!r}")
    return POLICIES[name]()
