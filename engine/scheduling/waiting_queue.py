"""The queue of waiting requests: one order of arrival, and the order in which a policy asks.

New requests join at the back, preempted ones at the front. A request may leave from the middle when
its client goes away, and that must be cheap with 10,000 waiting: hence a dict for membership and a
heap for the policy's order, in which a removed request's entry is dropped when it surfaces.
"""

import heapq
from collections import OrderedDict
from collections.abc import Generator, Iterator

from engine.cache.radix_tree import RadixTree
from engine.scheduling.policies import Policy
from engine.scheduling.request import Request

_Entry = tuple[tuple[float, ...], int, Request]  # key, position: unique, so requests never compare


class WaitingQueue:
    """Waiting requests. Iterating gives queue order; `in_order` gives the policy's."""

    def __init__(self, policy: Policy, tree: RadixTree) -> None:
        self._policy = policy
        self._tree = tree
        self._waiting: OrderedDict[int, tuple[Request, int]] = OrderedDict()  # id -> position
        self._heap: list[_Entry] = []
        self._first = self._last = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        return (request for request, _ in self._waiting.values())

    def __contains__(self, request: Request) -> bool:
        return request.id in self._waiting

    def add(self, request: Request) -> None:
        """Join at the back."""
        self._last += 1
        self._put(request, self._last)

    def add_front(self, request: Request) -> None:
        """Join at the front: a preempted request has waited its turn before."""
        self._first -= 1
        self._put(request, self._first)
        self._waiting.move_to_end(request.id, last=False)

    def remove(self, request: Request) -> None:
        """Leave, from wherever in the queue."""
        del self._waiting[request.id]
        if len(self._heap) > 2 * len(self._waiting) + 64:  # mostly stale: start over
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)

    def key(self, request: Request) -> tuple[float, ...]:
        """The policy's key for a request, as of now."""
        return self._policy.key(request, self._tree)

    def in_order(self) -> Generator[Request, None, None]:
        """Waiting requests in the policy's order, lazily. Close it when done.

        The caller may remove the request it was given last.
        """
        policy = self._policy
        if policy.sort_limit is not None and len(self) > policy.sort_limit:
            yield from list(self)
        elif policy.keys_change:
            yield from sorted(self, key=self.key)  # stable: equals keep the order of the queue
        else:
            yield from self._by_fixed_key()

    def _put(self, request: Request, position: int) -> None:
        self._waiting[request.id] = (request, position)
        if not self._policy.keys_change:
            heapq.heappush(self._heap, (self.key(request), position, request))

    def _is_current(self, entry: _Entry) -> bool:
        _, position, request = entry
        return self._waiting.get(request.id) == (request, position)

    def _by_fixed_key(self) -> Generator[Request, None, None]:
        examined: list[_Entry] = []
        try:
            while self._heap:
                entry = heapq.heappop(self._heap)
                if self._is_current(entry):
                    examined.append(entry)
                    yield entry[2]
        finally:
            for entry in examined:
                if self._is_current(entry):
                    heapq.heappush(self._heap, entry)
