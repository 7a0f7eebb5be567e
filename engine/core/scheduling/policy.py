"""A policy decides which requests are admitted, in which order, and which are preempted.

Subclass `Policy`, override the methods you want to change, and pass an instance:
`Engine(runner, config, policy=Mine())`. Each engine needs its own instance. `docs/extending.md`
shows an example of each kind.

    decisions      key         the order of the queue       before an admission
                   admit       which requests may join      once per step, if requests wait
                   victim      which request is preempted   when a running request needs a block
                   defer       which requests wait a step   before an admission, if others compute
    notifications  on_queued   a request joins the queue
                   on_served   tokens of a request were computed

Differs from vLLM and SGLang: vLLM's policies are queues (`vllm/v1/core/sched/request_queue.py`) and
SGLang's sort a list (`python/sglang/srt/managers/schedule_policy.py`). In both, the
scheduler decides on admission and victims.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.core.cache.prefix_cache import PrefixLookup
from engine.core.request import Request

if TYPE_CHECKING:
    from engine.core.scheduling.waiting_queue import WaitingQueue


class AdmissionLimits(NamedTuple):
    """Seats in the batch, tokens and KV blocks that running requests leave over in a step."""

    seats: int
    tokens: int
    blocks: int
    block_size: int


class Policy:
    """First come, first served; the request that was admitted last is preempted first.

    keys_change   recompute every key in each step, because keys may shrink while requests wait
    sort_limit    with more waiting requests than this, keep the queue's order and defer no request
    """

    name = "fcfs"
    keys_change = False
    sort_limit: int | None = None

    # Decisions

    def key(self, request: Request, tree: PrefixLookup) -> tuple[float, ...]:
        """Return the sort key of a waiting request: the smallest goes first.

        Ties keep the queue's order. You may call `tree.match` freely. Unless `keys_change` is set,
        a key may grow while the request waits but must not shrink.
        """
        return ()

    def group(self, request: Request) -> Hashable:
        """Return the group of a request; requests of one group keep the queue's order.

        Only the first request of a group needs a key, so a policy that serves clients in turn
        computes as many keys as there are clients. By default each request is its own
        group.
        """
        return request.id

    def admit(
        self, waiting: Iterator[Request], limits: AdmissionLimits
    ) -> Collection[Request] | None:
        """Return the requests of `waiting` (in the policy's order) that may join now; None is all.

        The first request that you leave out blocks all requests behind it. A request that does not
        fit is never admitted. If no request computes in this step, the first one joins even if you
        leave it out, so every step makes progress.
        """
        return None

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:
        """Return the request to preempt so that `needed_by` gets blocks; it may be `needed_by`.

        `running` is in order of admission and never empty.
        """
        return running[-1]

    def defer(self, request: Request, tree: PrefixLookup, computing: Sequence[Request]) -> bool:
        """Return whether a request that could be admitted should wait for another step.

        The requests behind it are considered next. `computing` lists the requests that are planned
        so far for this step. It is never empty, because the only runnable request is never
        deferred.
        """
        return False

    # Notifications

    def on_queued(self, request: Request, waiting: "WaitingQueue") -> None:
        """Note that a request, new or preempted, is about to join the queue."""

    def on_served(self, request: Request, prompt_tokens: int, output_tokens: int) -> None:
        """Note that tokens of a request were computed.

        The first admission reports the prompt tokens that are not cached; later steps report output
        tokens. Recomputation after a preemption is not reported.
        """


def hook(policy: Policy, method: str) -> Callable[..., Any] | None:
    """Return a method of a policy, or None if its class does not override the default.

    The engine calls a policy only for what it decides, so first come, first served costs nothing.
    """
    bound: Callable[..., Any] = getattr(policy, method)
    return None if getattr(bound, "__func__", None) is getattr(Policy, method) else bound
