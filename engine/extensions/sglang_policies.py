"""More policies of SGLang, for its scheduler: `Engine(..., policy=ShortestPrefillFirst())`.

A policy sorts the queue in place before each step that may admit. `Pass` has what it can look at.

Source: SGLang's `python/sglang/srt/managers/schedule_policy.py` (`SchedulePolicy`) and
`mem_cache/base_prefix_cache.py` (`_dfs_weight_order`).

Differs from SGLang: without a prefix cache, a policy that reads it keeps the order of arrival, also
shortest-prefill-first, with which SGLang then does not start.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from engine.core.cache.prefix_cache import PrefixLookup
from engine.core.cache.radix_tree import RadixNode, RadixTree
from engine.core.request import Request
from engine.core.scheduling.policy import Policy


class Pass(NamedTuple):
    """What a policy can look at when it sorts the queue. Keys are ids of waiting requests.

    running  the requests that decode
    joined   when a request joined the queue last, as a rank
    waited   tokens that were computed since then, as SGLang counts them
    cached   tokens of the cached prefix, at most all but one; only if the policy reads the cache
    repeats  requests that begin like one before them in the queue, with little of it cached yet; they
             go last, because they find the prefix once the other request has computed it
    """

    tree: RadixTree
    running: Sequence[Request]
    joined: Mapping[int, int]
    waited: Mapping[int, int]
    cached: Mapping[int, int]
    repeats: AbstractSet[int]


class SGLangPolicy(Policy):
    """A policy that sorts SGLang's list of waiting requests.

    reads_cache  look up each waiting request's prefix first, which is an access to the cache
    """

    reads_cache = True

    def sort(self, waiting: list[Request], now: Pass) -> None:
        """Sort waiting requests in place. What compares equal keeps its order."""
        waiting.sort(key=lambda request: self.rank(request, now))

    def rank(self, request: Request, now: Pass) -> tuple[float, ...]:
        """Return the sort key of a waiting request: the smallest goes first."""
        raise NotImplementedError


class LongestPrefixFirst(SGLangPolicy):
    """The longest cached prefix first: the engine's setting `policy="lpm"`."""

    def rank(self, request: Request, now: Pass) -> tuple[float, ...]:
        """Return (whether it repeats another, minus cached tokens)."""
        repeats = request.id in now.repeats
        return (repeats, 0 if repeats else -now.cached[request.id])


class HighestResponseRatio(SGLangPolicy):
    """Highest response ratio next: the waiting time, relative to the work that a prompt is.

    Time is counted in computed tokens. Short prompts go first, but a long one gets more urgent while it
    waits, so that it does not starve.
    """

    name = "hrrn"
    sort_limit = 128

    def rank(self, request: Request, now: Pass) -> tuple[float, ...]:
        """Return (whether it repeats another, minus the ratio, id)."""
        uncached = request.prompt_length - now.cached[request.id]
        ratio = now.waited[request.id] / uncached if uncached > 0 else float("inf")
        repeats = request.id in now.repeats
        return (repeats, 0 if repeats else -ratio, request.id)


class ShortestPrefillFirst(SGLangPolicy):
    """The fewest tokens to compute first.

    The chunk of a long prompt leaves room in the budget for shorter prompts that wait.
    """

    name = "shortest-prefill-first"

    def __init__(self) -> None:
        self._work: dict[int, int] = {}

    def sort(self, waiting: list[Request], now: Pass) -> None:
        """Sort waiting requests in place."""
        self._work = {one.id: max(1, len(one.tokens) - now.cached[one.id]) for one in waiting}
        super().sort(waiting, now)

    def rank(self, request: Request, now: Pass) -> tuple[float, ...]:
        """Return (whether it repeats another, tokens to compute, when it joined)."""
        return (request.id in now.repeats, self._work[request.id], now.joined[request.id])

    def chunk_limit(self, left: int, waiting: Sequence[Request], budget: int, page: int) -> int:
        """Return how much of the budget the next chunk of a prompt with `left` tokens may take.

        All are in tokens. `waiting` has been sorted.
        """
        reserved = 0
        for request in waiting:
            work = self._work[request.id]
            charge = -(-work // page) * page
            if work >= left or reserved + charge > budget - page:
                break
            reserved += charge
        return (budget - reserved) // page * page if reserved else budget


class DepthFirst(SGLangPolicy):
    """The order of a depth-first search, so that requests with a common prefix follow each other.

    Of a node's children, the one comes first below which the most requests wait, and the requests
    whose prefix ends at a node come after those below it.
    """

    name = "dfs-weight"

    def sort(self, waiting: list[Request], now: Pass) -> None:
        """Sort waiting requests in place."""
        tree = now.tree
        ends, weights = defaultdict[int, list[Request]](list), defaultdict[int, int](int)
        for request in waiting:
            node = tree.match(request.tokens, len(request.tokens) // tree.block_size).node
            ends[node.id].append(request)
            for above in (*tree.path(node), tree.root):
                weights[above.id] += 1
        waiting.clear()
        stack: list[tuple[RadixNode, bool]] = [(tree.root, False)]
        while stack:
            node, visited = stack.pop()
            if visited:
                waiting += ends[node.id]
                continue
            children = sorted(node.children.values(), key=lambda child: -weights[child.id])
            stack.append((node, True))
            stack += [(child, False) for child in reversed(children)]


class LongestOutputFirst(Policy):
    """The request with the largest `max_tokens` first."""

    name = "lof"

    def key(self, request: Request, tree: PrefixLookup) -> tuple[float, ...]:
        """Return (minus max_tokens)."""
        return (-request.params.max_tokens,)


class RoutingKey(SGLangPolicy):
    """Requests whose key most running requests have come first. The key is the request's label."""

    name = "routing-key"
    reads_cache = False

    def sort(self, waiting: list[Request], now: Pass) -> None:
        """Sort waiting requests in place, unless no running request has a key."""
        counts = Counter(request.label for request in now.running if request.label)
        if counts:
            waiting.sort(key=lambda request: (-counts[request.label], request.label))


class RandomOrder(SGLangPolicy):
    """Another order in each pass, which the server's `--random-seed` decides."""

    name = "random"
    reads_cache = False

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def sort(self, waiting: list[Request], now: Pass) -> None:
        """Shuffle waiting requests in place."""
        self._random.shuffle(waiting)


SGLANG_POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        LongestOutputFirst,
        DepthFirst,
        HighestResponseRatio,
        ShortestPrefillFirst,
        RoutingKey,
        RandomOrder,
    )
}
