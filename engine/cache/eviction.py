"""Eviction orders: which prefix is forgotten first when memory is needed.

Only leaves that nobody has locked can go; the order decides among those. Write your own by subclassing
`EvictionOrder` and pass it in: `Engine(runner, config, eviction=Mine())`.

SGLang has these two and more (`python/sglang/srt/mem_cache/evict_policy.py`); vLLM is always LRU.
"""

from typing import TYPE_CHECKING

from engine.config import ConfigError

if TYPE_CHECKING:
    from engine.cache.radix_tree import RadixNode


class EvictionOrder:
    """Least recently used first: what `key` does by default."""

    name = "lru"

    def key(self, node: "RadixNode") -> tuple[float, ...]:
        """The leaf with the smallest key goes first, of equals the one that is older.

        Look at the node alone: a key is asked when the node has changed or has become a leaf, and
        once more before it goes. It may have grown in between, but not shrunk.
        """
        return (node.last,)


class LRU(EvictionOrder):
    """Least recently used first."""


class LFU(EvictionOrder):
    """Least frequently used first: the fewest requests have read it; of equals the LRU one.

    What was popular once stays, wanted or not: nothing ages.
    """

    name = "lfu"

    def key(self, node: "RadixNode") -> tuple[float, ...]:
        """(uses, time of the latest lock)."""
        return (node.uses, node.last)


EVICTIONS: dict[str, type[EvictionOrder]] = {order.name: order for order in (LRU, LFU)}


def eviction_named(name: str) -> EvictionOrder:
    """A new eviction order by its name. Raises ConfigError for a name that is not in `EVICTIONS`."""
    if name not in EVICTIONS:
        raise ConfigError(f"eviction must be one of {', '.join(EVICTIONS)}, got {name!r}")
    return EVICTIONS[name]()
