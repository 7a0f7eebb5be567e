"""What a policy decides: who is asked next, who gives way when memory runs out, who is put off.

Subclass `Policy`, override what you want to be different and pass an object in:
`Engine(runner, config, policy=Mine())`. Each engine needs an object of its own. `docs/extending.md`
shows one of each kind.

    asked      key      the order of the queue           before an admission
               admit    who of the queue may join        once in each step in which anybody waits
               victim   who is preempted                 when a running request finds no block
               defer    who is put off for this step     before an admission, while others compute
    told       joins    a request joins the queue
               served   a request got computation

vLLM's policies are queues (`vllm/v1/core/sched/request_queue.py`), SGLang's sort one
(`python/sglang/srt/managers/schedule_policy.py`).
"""

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine.cache.radix_tree import RadixTree
from engine.scheduling.request import Request

if TYPE_CHECKING:
    from engine.scheduling.waiting_queue import WaitingQueue


class AdmissionLimits(NamedTuple):
    """What running requests leave in a step: seats in the batch, tokens of the budget, KV blocks."""

    seats: int
    tokens: int
    blocks: int
    block_size: int


class Policy:
    """First come, first served, and the last to come gives way: what the methods do by default.

    keys_change   ask for every key anew in each step, because keys may get smaller while they wait
    sort_limit    with more requests waiting than this, keep the order of the queue and put nobody off
    """

    name = "fcfs"
    keys_change = False
    sort_limit: int | None = None

    # Asked

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:  # noqa: ARG002
        """The request's place in the queue: smaller goes first, equals in the order of the queue.

        `tree` may be searched freely. Unless `keys_change`, a key may grow while the request waits
        but must not shrink.
        """
        return ()

    def line(self, request: Request) -> Hashable:
        """Requests of one line keep the order of the queue among themselves.

        Only the first of a line is asked for its key, so that a policy that serves clients in turn
        looks at as many requests as there are clients. By default everybody is a line alone.
        """
        return request.id

    def admit(
        self,
        waiting: Iterator[Request],  # noqa: ARG002
        limits: AdmissionLimits,  # noqa: ARG002
    ) -> Collection[Request] | None:
        """Those of `waiting`, which comes in order, who may join now; None: everybody who fits.

        It can keep requests out, and with them all behind, but let nobody in who does not fit. While
        nobody else computes, the first in line joins in any case, so that every step gets something
        done.
        """
        return None

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:  # noqa: ARG002
        """The one of `running` to preempt so that `needed_by` gets blocks; it may be itself.

        `running` is in order of admission and never empty.
        """
        return running[-1]

    def defer(self, request: Request, tree: RadixTree, computing: Sequence[Request]) -> bool:  # noqa: ARG002
        """Whether to put a request off that could be admitted; those behind it are asked next.

        `computing` are the requests that compute in this step, as far as it is planned. It is never
        empty: who would be alone is not put off, so that every step gets something done.
        """
        return False

    # Told

    def joins(self, request: Request, waiting: "WaitingQueue") -> None:
        """A request is about to join the queue: it is new, or was preempted."""

    def served(self, request: Request, prompt_tokens: int, output_tokens: int) -> None:
        """A request got computation.

        Its prompt's tokens without the cached ones, once, when it is first admitted; what it has
        to compute again after a preemption is not counted. Then its output tokens, step by step.
        """
