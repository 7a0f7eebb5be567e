"""Eviction orders: which cached prefix is evicted first when memory is needed.

Only unlocked leaves can be evicted, and the order decides among them. Write your own order by
subclassing `EvictionOrder` and pass it in: `Engine(runner, config, eviction=Mine())`.

SGLang has both of these orders and more (`python/sglang/srt/mem_cache/evict_policy.py`); vLLM always
evicts the least recently used block.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.core.cache.radix_tree import RadixNode


class EvictionOrder:
    """Least recently used first, unless a subclass overrides `key`."""

    name = "lru"

    def key(self, node: "RadixNode") -> tuple[float, ...]:
        """Return a leaf's sort key. The smallest key is evicted first; ties go to the oldest node.

        Use only the node itself. The key is computed when the node changes or becomes a leaf, and
        again before the node is evicted. In between, the key may grow but must not shrink.
        """
        return (node.last,)


class LRU(EvictionOrder):
    """Least recently used first."""


class LFU(EvictionOrder):
    """Least frequently used first: the leaf that fewest requests read; ties go to the LRU leaf.

    A prefix that was popular once stays even if it is no longer used, because uses never decay.
    """

    name = "lfu"

    def key(self, node: "RadixNode") -> tuple[float, ...]:
        """Return (uses, time of the latest lock)."""
        return (node.uses, node.last)


EVICTIONS: dict[str, type[EvictionOrder]] = {order.name: order for order in (LRU, LFU)}
