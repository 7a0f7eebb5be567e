"""A policy: it decides which requests are admitted, in which order, and which are preempted.

Subclass `Policy`, override what should be different, and pass an object in:
`Engine(runner, config, policy=Mine())`. Each engine needs an object of its own. `docs/extending.md`
shows one of each kind.

    decisions      key         the order of the queue       before an admission
                   admit       which requests may join      once in each step with a queue
                   victim      which request is preempted   when a running request needs a block
                   defer       which requests wait a step   before an admission beside others
    notifications  on_queued   a request joins the queue
                   on_served   a request got computation

Differs from vLLM and SGLang: vLLM's policies are queues (`vllm/v1/core/sched/request_queue.py`) and
SGLang's sort a list (`python/sglang/srt/managers/schedule_policy.py`). There, the
scheduler decides about admission and victims.
"""

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine.cache.radix_tree import RadixTree
from engine.scheduling.request import Request

if TYPE_CHECKING:
    from engine.scheduling.waiting_queue import WaitingQueue


class AdmissionLimits(NamedTuple):
    """Resources that running requests leave in a step: seats in the batch, tokens and KV blocks."""

    seats: int
    tokens: int
    blocks: int
    block_size: int


class Policy:
    """First come, first served; the request that was admitted last is preempted first.

    keys_change   ask for every key again in each step, because keys may shrink while requests wait
    sort_limit    with more waiting requests than this, keep the queue's order and defer no request
    """

    name = "fcfs"
    keys_change = False
    sort_limit: int | None = None

    # Decisions

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:  # noqa: ARG002
        """Return the sort key of a waiting request: the smallest goes first.

        Ties keep the queue's order. You may call `tree.match` freely. Unless `keys_change` is set,
        a key may grow while the request waits but must not shrink.
        """
        return ()

    def group(self, request: Request) -> Hashable:
        """Return the group of a request; requests of one group keep the queue's order.

        Only the first request of a group is asked for its key, so a policy that serves clients in
        turn looks at as many requests as there are clients. By default each request is its own
        group.
        """
        return request.id

    def admit(
        self,
        waiting: Iterator[Request],  # noqa: ARG002
        limits: AdmissionLimits,  # noqa: ARG002
    ) -> Collection[Request] | None:
        """Return the requests of `waiting` (in the policy's order) that may join now; None for all.

        The first request that you leave out blocks all behind it. A request that does not fit is
        not admitted in any case. While no request computes, the first one joins even if you leave
        it out, so that every step makes progress.
        """
        return None

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:  # noqa: ARG002
        """Return the request to preempt so that `needed_by` gets blocks; it may be `needed_by`.

        `running` is in order of admission and never empty.
        """
        return running[-1]

    def defer(self, request: Request, tree: RadixTree, computing: Sequence[Request]) -> bool:  # noqa: ARG002
        """Return whether a request that could be admitted should wait for another step.

        The requests behind it are asked next. `computing` has the requests that compute in this
        step, as far as it is planned. It is never empty: the only runnable request is never
        deferred.
        """
        return False

    # Notifications

    def on_queued(self, request: Request, waiting: "WaitingQueue") -> None:
        """Note that a request is about to join the queue, new or preempted."""

    def on_served(self, request: Request, prompt_tokens: int, output_tokens: int) -> None:
        """Note that a request got computation.

        Its first admission reports the prompt tokens that are not cached, later steps report output
        tokens. Recomputation after a preemption is not reported.
        """


def overrides(policy: Policy, method: str) -> bool:
    """Return whether a policy's class has its own version of a method."""
    return getattr(type(policy), method) is not getattr(Policy, method)
