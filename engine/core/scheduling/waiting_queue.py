"""The queue of waiting requests, in order of arrival and in the policy's order.

New requests join at the back and preempted ones at the front. A request may leave from the middle
when its client disconnects, and that must be cheap with 10,000 waiting requests, so the queue keeps
three data structures:

    waiting   all requests in queue order: id -> (request, position, group)
    groups    group -> its requests in queue order; by default each request is a group of its own
    heap      (key, position, group) for the first request of each group

Without keys of a policy, the order is that of the queue, and the heap stays empty.

A heap entry is stale when its request has left or its key has grown. Stale entries are dropped or
updated only when they reach the top. Because a key never shrinks, no request is passed over. Greedy
algorithms use the same lazy heap.

Differs from vLLM, whose priority queue is a heap over all requests with keys that are fixed at
arrival (`vllm/v1/core/sched/request_queue.py`). SGLang sorts the whole list in each step.
"""

import heapq
from collections import OrderedDict
from collections.abc import Generator, Hashable, Iterator
from contextlib import closing
from itertools import islice

from engine.core.cache.prefix_cache import PrefixLookup
from engine.core.request import Request
from engine.core.scheduling.policy import Policy, hook

_Entry = tuple[tuple[float, ...], int, Hashable]  # positions are unique, so groups never compare


class WaitingQueue:
    """Waiting requests. Iteration yields queue order; `in_order` yields the policy's order.

    If the policy raises, the queue does not change.
    """

    def __init__(self, policy: Policy, tree: PrefixLookup) -> None:
        self._policy = policy
        self._key, self._group = hook(policy, "key"), hook(policy, "group")
        self._on_queued = hook(policy, "on_queued")
        self._tree = tree
        self._waiting: OrderedDict[int, tuple[Request, int, Hashable]] = OrderedDict()
        self._groups: dict[Hashable, OrderedDict[int, Request]] = {}
        self._heap: list[_Entry] = []
        # Groups whose first request has no entry in the heap yet.
        self._not_in_heap: dict[Hashable, None] = {}
        self._front = self._back = 0  # positions given out so far

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        for request, _, _ in self._waiting.values():
            yield request

    def has_group(self, group: Hashable) -> bool:
        """Return whether a request of this group is waiting."""
        return group in self._groups

    def add(self, request: Request, *, front: bool = False) -> None:
        """Add a request at the back, or at the front if it has run before."""
        if self._on_queued is not None:
            self._on_queued(request, self)  # this comes first because it may raise
        group = request.id if self._group is None else self._group(request)
        if front:
            self._front -= 1
            self._waiting[request.id] = (request, self._front, group)
            self._waiting.move_to_end(request.id, last=False)
            self._put_first(group, request)
        else:
            self._back += 1
            self._waiting[request.id] = (request, self._back, group)
            if group not in self._groups:
                self._groups[group] = OrderedDict()
                self._not_in_heap[group] = None
            self._groups[group][request.id] = request

    def remove(self, request: Request) -> None:
        """Remove a request from any position in the queue."""
        _, _, group = self._waiting.pop(request.id)
        members = self._groups[group]
        was_first = next(iter(members)) == request.id
        del members[request.id]
        if not members:
            del self._groups[group]
            self._not_in_heap.pop(group, None)
        elif was_first:
            self._not_in_heap[group] = None

    def key(self, request: Request) -> tuple[float, ...]:
        """Return the policy's key for a request, as of now."""
        return () if self._key is None else self._key(request, self._tree)

    def first(self) -> Request | None:
        """Return the first request in the policy's order, or None if no request is waiting."""
        with closing(self.in_order()) as candidates:
            return next(candidates, None)

    @property
    def is_over_limit(self) -> bool:
        """Whether more requests are waiting than the policy is willing to sort."""
        limit = self._policy.sort_limit
        return limit is not None and len(self) > limit

    def in_order(self) -> Generator[Request, None, None]:
        """Yield waiting requests in the policy's order, lazily. Close the generator when done.

        The caller may remove the request that was yielded last.
        """
        if self._key is None or self.is_over_limit:
            passed = 0
            while chunk := tuple(islice(self._waiting.values(), passed, 2 * passed + 1)):
                for request, _, _ in chunk:
                    yield request
                    passed += request.id in self._waiting
        elif self._policy.keys_change:
            yield from sorted(self, key=self.key)  # stable: ties keep the queue's order
        else:
            stayed: list[tuple[Hashable, Request]] = []
            try:
                while (head := self._head()) is not None:
                    group, request = head
                    yield request
                    if request.id in self._waiting:
                        stayed.append(head)
                        # Take the request out for now, so that the next one of its group gets a turn.
                        del self._groups[group][request.id]
                        self._not_in_heap[group] = None
            finally:
                for group, request in reversed(stayed):
                    self._put_first(group, request)

    def _put_first(self, group: Hashable, request: Request) -> None:
        members = self._groups.setdefault(group, OrderedDict())
        members[request.id] = request
        members.move_to_end(request.id, last=False)
        self._not_in_heap[group] = None

    def _head(self) -> tuple[Hashable, Request] | None:
        """Return the group with the smallest key, and its first request."""
        if len(self._heap) > 2 * len(self._groups) + 64:  # most entries are stale, so rebuild it
            self._heap = []
            self._not_in_heap = dict.fromkeys(self._groups)
        while self._not_in_heap:
            group = next(iter(self._not_in_heap))
            first = next(iter(self._groups.get(group, ())), None)
            if first is not None:
                request, position, _ = self._waiting[first]
                heapq.heappush(self._heap, (self.key(request), position, group))
            del self._not_in_heap[group]

        # Compute each key only once: with random keys, this loop might never end otherwise.
        keys: dict[Hashable, tuple[float, ...]] = {}
        while self._heap:
            key, position, group = self._heap[0]
            first = next(iter(self._groups.get(group, ())), None)
            if first is None or self._waiting[first][1] != position:
                heapq.heappop(self._heap)
                continue
            request = self._groups[group][first]
            if group not in keys:
                keys[group] = self.key(request)
            if keys[group] <= key:
                return group, request
            heapq.heapreplace(self._heap, (keys[group], position, group))
        return None
