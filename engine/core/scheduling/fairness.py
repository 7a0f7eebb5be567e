"""Fair shares for clients: the client that has received the least service goes first.

Each label has a counter of the service that its requests got, in tokens. The next request comes
from the waiting label with the smallest counter; within a label, requests keep their order. The
policy is work-conserving: while only one label has requests, it gets everything.

A label cannot save up unused service. When it joins the queue again, its counter is lifted to the
smallest counter among the waiting labels. This gives a bound: over any period in which two labels
both have requests waiting, their service differs by at most 2 * max(w_p * longest prompt,
w_q * most tokens in the batch).

Source: the Virtual Token Counter (arXiv:2401.00588, OSDI 2024), with its weights: an output token
costs two prompt tokens.

Differs from the paper: cached prompt tokens are not charged, and the victim of a preemption comes from
the label that got the most service (the paper has no preemption).
"""

from collections.abc import Hashable, Sequence

from engine.core.cache.prefix_cache import PrefixLookup
from engine.core.request import Request
from engine.core.scheduling.policy import Policy
from engine.core.scheduling.waiting_queue import WaitingQueue

# Clients choose their labels, so the number of counters must be bounded.
MAX_LABELS = 10_000


class Fair(Policy):
    """Least-served label first. Requests without a label share one counter.

    service  label -> the weighted tokens that it received or was lifted to
    """

    name = "fair"
    prompt_weight = 1
    output_weight = 2

    def __init__(self) -> None:
        self.service: dict[str, int] = {}
        self._last_served = ""

    def key(self, request: Request, tree: PrefixLookup) -> tuple[float, ...]:
        """Return (service of the request's label)."""
        return (self.service.get(request.label, 0),)

    def group(self, request: Request) -> Hashable:
        """Return the label."""
        return request.label

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:
        """Return the most recently admitted request of the label with the most service."""
        return max(reversed(running), key=lambda request: self.service.get(request.label, 0))

    def on_queued(self, request: Request, waiting: WaitingQueue) -> None:
        """Lift a label that had no waiting request to the smallest counter among waiting labels.

        If the queue is empty, lift it to the counter of the label that was admitted last.
        """
        if waiting.has_group(request.label):
            return
        first = waiting.first()
        level = self.service.get(self._last_served if first is None else first.label, 0)
        if len(self.service) >= MAX_LABELS:
            self._drop_counters(waiting)
        self.service[request.label] = max(self.service.get(request.label, 0), level)

    def on_served(self, request: Request, prompt_tokens: int, output_tokens: int) -> None:
        """Charge the tokens to the request's label."""
        cost = self.prompt_weight * prompt_tokens + self.output_weight * output_tokens
        self.service[request.label] = self.service.get(request.label, 0) + cost
        if prompt_tokens:
            self._last_served = request.label

    def _drop_counters(self, waiting: WaitingQueue) -> None:
        """Drop the smaller half of the counters, because their labels would be lifted anyway."""
        by_service = sorted(self.service, key=self.service.__getitem__)
        for label in by_service[: len(by_service) // 2]:
            if not waiting.has_group(label):
                del self.service[label]
