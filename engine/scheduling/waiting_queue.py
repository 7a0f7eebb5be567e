"""The queue of waiting requests: one order of arrival, and the order in which a policy asks.

New requests join at the back, preempted ones at the front. A request may leave from the middle when
its client goes away, and that must be cheap with 10,000 waiting. Hence, instead of one list:

    waiting   everybody in queue order: id -> (request, position, line)
    lines     line -> its requests in queue order; by default everybody is a line alone
    heap      (key, position, line) of the first of each line

An entry of the heap may be out of date: its request has left, or its key has grown. That shows when it
comes to the top, and only then it is dropped or put right. A key that only grows is thereby never
asked too late (this is the lazy heap of greedy algorithms).
"""

import heapq
from collections import OrderedDict
from collections.abc import Generator, Hashable, Iterator
from contextlib import closing
from itertools import islice

from engine.cache.radix_tree import RadixTree
from engine.part_errors import PolicyError, ask, checked_key
from engine.scheduling.policy import Policy
from engine.scheduling.request import Request

_Entry = tuple[tuple[float, ...], int, Hashable]  # positions are unique, so lines never compare


class WaitingQueue:
    """Waiting requests. Iterating gives queue order; `in_order` gives the policy's.

    Raises PolicyError for a policy that raises, or whose key is not a tuple of numbers; the queue is
    as it was then.
    """

    def __init__(self, policy: Policy, tree: RadixTree) -> None:
        self._policy = policy
        self._tree = tree
        self._waiting: OrderedDict[int, tuple[Request, int, Hashable]] = OrderedDict()
        self._lines: dict[Hashable, OrderedDict[int, Request]] = {}
        self._heap: list[_Entry] = []
        self._unasked: dict[Hashable, None] = {}  # lines whose first has no entry in the heap yet
        self._first = self._last = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        return (request for request, _, _ in self._waiting.values())

    def __contains__(self, request: Request) -> bool:
        return request.id in self._waiting

    def has_line(self, line: Hashable) -> bool:
        """Whether anybody of this line waits."""
        return line in self._lines

    def add(self, request: Request) -> None:
        """Join at the back."""
        line = self._joins(request)
        self._last += 1
        self._waiting[request.id] = (request, self._last, line)
        self._lines.setdefault(line, OrderedDict())[request.id] = request
        if len(self._lines[line]) == 1:
            self._unasked[line] = None

    def add_front(self, request: Request) -> None:
        """Join at the front: a preempted request has waited its turn before."""
        line = self._joins(request)
        self._first -= 1
        self._waiting[request.id] = (request, self._first, line)
        self._waiting.move_to_end(request.id, last=False)
        self._put_first(line, request)

    def remove(self, request: Request) -> None:
        """Leave, from wherever in the queue."""
        _, _, line = self._waiting.pop(request.id)
        was_first = next(iter(self._lines[line])) == request.id
        del self._lines[line][request.id]
        if not self._lines[line]:
            del self._lines[line]
            self._unasked.pop(line, None)
        elif was_first:
            self._unasked[line] = None

    def key(self, request: Request) -> tuple[float, ...]:
        """The policy's key for a request, as of now."""
        key = ask(PolicyError, self._policy.key, request, self._tree)
        return checked_key(PolicyError, self._policy, key)

    def first(self) -> Request | None:
        """Who is asked first, None while nobody waits."""
        with closing(self.in_order()) as candidates:
            return next(candidates, None)

    def in_order(self) -> Generator[Request, None, None]:
        """Waiting requests in the policy's order, lazily. Close it when done.

        The caller may remove the request it was given last.
        """
        if self.is_over_limit:
            yield from self._in_queue_order()
        elif self._policy.keys_change:
            yield from sorted(self, key=self.key)  # stable: equals keep the order of the queue
        else:
            yield from self._from_heap()

    @property
    def is_over_limit(self) -> bool:
        """Whether more wait than the policy sorts."""
        limit = self._policy.sort_limit
        return limit is not None and len(self) > limit

    def _joins(self, request: Request) -> Hashable:
        """Whatever a policy gets wrong here, it does before the queue has changed."""
        ask(PolicyError, self._policy.joins, request, self)
        return ask(PolicyError, self._policy.line, request)

    def _put_first(self, line: Hashable, request: Request) -> None:
        self._lines.setdefault(line, OrderedDict())[request.id] = request
        self._lines[line].move_to_end(request.id, last=False)
        self._unasked[line] = None

    def _in_queue_order(self) -> Generator[Request, None, None]:
        passed = 0
        while (request := next(islice(self, passed, None), None)) is not None:
            yield request
            passed += request in self

    def _from_heap(self) -> Generator[Request, None, None]:
        passed: list[tuple[Hashable, Request]] = []  # were given and stayed
        try:
            while (top := self._top()) is not None:
                line, request = top
                yield request
                if request in self:
                    passed.append((line, request))
                    # For a moment, so that those behind it in its line are asked as well.
                    del self._lines[line][request.id]
                    self._unasked[line] = None
        finally:
            for line, request in reversed(passed):
                self._put_first(line, request)

    def _top(self) -> tuple[Hashable, Request] | None:
        """The line with the smallest key, and its first request."""
        self._ask_keys()
        keys: dict[Hashable, tuple[float, ...]] = {}  # asked once, or a whim would never end
        while self._heap:
            key, position, line = self._heap[0]
            first = next(iter(self._lines.get(line, ())), None)
            if first is None or self._waiting[first][1] != position:
                heapq.heappop(self._heap)
                continue
            request = self._lines[line][first]
            if line not in keys:
                keys[line] = self.key(request)
            if keys[line] <= key:
                return line, request
            heapq.heapreplace(self._heap, (keys[line], position, line))
        return None

    def _ask_keys(self) -> None:
        if len(self._heap) > 2 * len(self._lines) + 64:  # mostly out of date: start over
            self._heap = []
            self._unasked = dict.fromkeys(self._lines)
        while self._unasked:
            line = next(iter(self._unasked))
            first = next(iter(self._lines.get(line, ())), None)
            if first is not None:
                request, position, _ = self._waiting[first]
                heapq.heappush(self._heap, (self.key(request), position, line))
            del self._unasked[line]
