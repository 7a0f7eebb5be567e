"""Fair shares for clients: whoever has had the least goes first.

Each label has a counter of the service its requests got, in tokens. The next request comes from the
waiting label whose counter is smallest, and within a label in order. Nobody is limited: while only one
label asks, it gets everything.

A label that comes back must not live on what it did not use: when it joins the queue it is lifted to
the smallest counter among those that wait. Hence, over any time in which two labels both have requests
waiting, their service differs by at most 2 * max(w_p * longest prompt, w_q * most tokens in the batch).

Source: the Virtual Token Counter (arXiv:2401.00588, OSDI 2024), with its weights: an output token costs
two prompt tokens. Two differences: prompt tokens that the cache had are not charged, and a victim of
preemption is taken from the label that has had the most (the paper has no preemption).
"""

from collections.abc import Hashable, Sequence

from engine.cache.radix_tree import RadixTree
from engine.scheduling.policy import Policy
from engine.scheduling.request import Request
from engine.scheduling.waiting_queue import WaitingQueue

# Labels are a client's to choose: a server must not remember them all for ever.
MOST_LABELS = 10_000


class Fair(Policy):
    """The label that has had the least service first. Requests without a label share one.

    service  label -> weighted tokens it got, or was lifted to
    """

    name = "fair"
    prompt_weight = 1
    output_weight = 2

    def __init__(self) -> None:
        self.service: dict[str, int] = {}
        self._served_last = ""

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:  # noqa: ARG002
        """(what the request's label has had)."""
        return (self.service.get(request.label, 0),)

    def line(self, request: Request) -> Hashable:
        """The label: its requests keep their order."""
        return request.label

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:  # noqa: ARG002
        """Of the label that has had the most the one that was admitted last."""
        return max(reversed(running), key=lambda request: self.service.get(request.label, 0))

    def joins(self, request: Request, waiting: WaitingQueue) -> None:
        """Lift a label of which nobody waits: to the least among those that do wait.

        Where nobody waits at all, to the label that left the queue last.
        """
        if waiting.has_line(request.label):
            return
        first = waiting.first()
        level = self.service.get(self._served_last if first is None else first.label, 0)
        if len(self.service) >= MOST_LABELS:
            self._forget(waiting)
        self.service[request.label] = max(self.service.get(request.label, 0), level)

    def served(self, request: Request, prompt_tokens: int, output_tokens: int) -> None:
        """Charge the label."""
        cost = self.prompt_weight * prompt_tokens + self.output_weight * output_tokens
        self.service[request.label] = self.service.get(request.label, 0) + cost
        if prompt_tokens:
            self._served_last = request.label

    def _forget(self, waiting: WaitingQueue) -> None:
        """Half of the labels: those that had the least would be lifted anyway when they come back."""
        by_service = sorted(self.service, key=self.service.__getitem__)
        for label in by_service[: len(by_service) // 2]:
            if not waiting.has_line(label):
                del self.service[label]
