"""SGLang's prefix cache as its scheduler uses it: checkpoints, and a time of access for each node.

`core/cache/radix_cache.py` has the tree. This cache differs from it in two ways, both SGLang's:

- A request's blocks enter the tree at a checkpoint: after each chunk of its prompt, and when it ends.
  Until then, the KV of its output is its own, and it is lost if the request is retracted.
- Every match is an access, even if the request is not admitted afterwards, and splits an edge where it
  ends. The time of access decides what is evicted; the node's `last` stays the time of its last lock.

Source: SGLang's `python/sglang/srt/mem_cache/radix_cache.py` and `common.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from engine.core.cache.block_pool import BlockPool
from engine.core.cache.eviction import LRU, EvictionOrder
from engine.core.cache.prefix_cache import WindowPages
from engine.core.cache.radix_cache import RadixCache
from engine.core.cache.radix_tree import Match, RadixNode, RadixTree
from engine.core.log import vocabulary as v
from engine.core.request import Request


class LeastRecentAccess(EvictionOrder):
    """Evict the leaf whose last access, by a match or a checkpoint, is longest ago."""

    def __init__(self, times: dict[int, int]) -> None:
        self._times = times

    def key(self, node: RadixNode) -> tuple[float, ...]:
        """Return the time of the latest access."""
        return (self._times.get(node.id, 0),)


class SGLangCache(RadixCache):
    """A radix tree that is filled at checkpoints.

    checkpoint_due  the requests whose prompt the current step completes
    """

    extends_outputs = False

    def __init__(
        self,
        pool: BlockPool,
        tree: RadixTree,
        emit: Callable[[v.Event], None],
        pages: WindowPages | None,
    ) -> None:
        super().__init__(pool, tree, emit, pages)
        self.checkpoint_due: set[int] = set()
        self._now = 0
        self._times: dict[int, int] = {}
        if type(tree.eviction) is LRU:
            tree.eviction = LeastRecentAccess(self._times)

    def match_prefix(self, request: Request) -> Match:
        """Return the cached prefix of a waiting request, which counts as an access."""
        found: Any = super().match_prefix(request)
        node = self._split_at_end(found)
        return Match(node, len(node.blocks), found.blocks)

    def touch_prefix(self, tokens: Sequence[int]) -> int:
        """Access all of a cached prefix. Return its length in tokens."""
        match = self.tree.match(tokens, len(tokens) // self.block_size)
        self._split_at_end(match)
        return len(match.blocks) * self.block_size

    def cache_computed(self, request: Request, up_to: int | None = None) -> None:
        """Make a checkpoint if the step has completed the request's prompt, also for its samples."""
        if request.id in self.checkpoint_due or request.root in self.checkpoint_due:
            self.checkpoint(request)

    def checkpoint(self, request: Request, *, in_flight: bool = False) -> None:
        """Put the full blocks that a request has computed into the tree, and access its whole path.

        With overlap, the last of these tokens may still be `in_flight`: passes run in order, so the KV
        is there before another request reads it. An edge ends where the prompt ends, so that the output
        can be evicted without the prompt.
        """
        if not self.tree.enabled:
            return
        up_to = request.num_scheduled_tokens if in_flight else request.num_computed_tokens
        super().cache_computed(request, up_to)
        prompt_end = request.prompt_length // self.block_size
        if 0 < prompt_end < up_to // self.block_size:
            self._split_at_end(self.tree.match(request.tokens, prompt_end))
        self._access(self.tree.nodes[request.last_node])

    def trim(self, request: Request) -> None:
        """Release the blocks past the scheduled tokens, unless the request has locked some of them.

        That happens only if a pass has failed whose KV is in the tree; then the request ends.
        """
        path = self.tree.path(self.tree.nodes[request.last_node])
        locked = sum(len(node.blocks) for node in path) * self.block_size
        if locked <= request.num_scheduled_tokens:
            super().trim(request)

    def make_free(self, blocks: int, needed_by: Request) -> bool:
        """Evict until so many blocks are free, as far as possible. Return whether they are."""
        while len(self.pool.free) < blocks and (leaf := self.tree.next_victim()) is not None:
            self._evict(leaf, needed_by.id, "room")
        return len(self.pool.free) >= blocks

    def _evict(self, leaf: RadixNode, needed_by: int, reason: v.EvictionReason) -> None:
        super()._evict(leaf, needed_by, reason)
        self._times.pop(leaf.id, None)

    def _split_at_end(self, match: Match) -> RadixNode:
        node = super()._split_at_end(match)
        self._access(node)
        self._times[match.node.id] = self._now  # the rest of an edge that was split
        return node

    def _access(self, node: RadixNode) -> None:
        self._now += 1
        for above in self.tree.path(node):
            self._times[above.id] = self._now
