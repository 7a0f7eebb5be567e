"""The interface of a prefix cache. Two classes implement it, each as its original engine does.

radix  `radix_cache.py`: SGLang's tree. A prefix can be found from the end of the step that computes
       it, whole leaves are evicted, and duplicates are merged.
hash   `hash_cache.py`: vLLM's block pool. A block can be found from the moment it is scheduled, single
       blocks are evicted, and duplicates are kept.

In both, a block's reference count is the number of block tables that contain it, plus one while the
cache holds it. A block with count 0 is on the free stack, and a cached block with count 1 can be
evicted.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

from engine.core.request import Request

NO_REQUEST = -1


class BlockOwner(Protocol):
    """An owner of a block table and a place in the cache: a request, or a hold (`holds.py`)."""

    id: int
    block_table: list[int]
    num_computed_tokens: int
    last_node: int


class PrefixMatch(Protocol):
    """The cached prefix of a token sequence, in whole blocks."""

    @property
    def blocks(self) -> list[int]:
        """The blocks, in the order of their tokens."""
        ...


class Adopted(NamedTuple):
    """Blocks that entered the cache without a request; see `PrefixAdopted`."""

    parent: int
    nodes: list[int]
    blocks: list[int]


class PrefixLookup(Protocol):
    """The part of a prefix cache that a policy may use, because looking up changes nothing.

    enabled  False if the engine's prefix cache is off
    """

    enabled: bool
    block_size: int

    def match(self, tokens: Sequence[int], limit: int) -> PrefixMatch:
        """Return the longest cached prefix of `tokens`, at most `limit` blocks."""
        ...


class WindowPages(Protocol):
    """Which blocks sliding layers have KV of; see `engine/extensions/window_pages.py`.

    Only a model whose sliding layers have a memory of their own has one. Its methods follow what caches
    and manager do with blocks.
    """

    window: int
    num_pages: int
    running: Sequence[Request]

    @property
    def blocks(self) -> list[int]:
        """The blocks that have a window page, in ascending order."""
        ...

    def limited(self, lookup: PrefixLookup) -> PrefixLookup:
        """Return a lookup that finds only prefixes whose window pages are present."""
        ...

    def has_page(self, block: int) -> bool:
        """Return whether a block is in use and has a window page."""
        ...

    def make_room(self, count: int, needed_by: int = NO_REQUEST) -> None:
        """Evict idle pages until `count` pages are free."""
        ...

    def assign(self, blocks: Iterable[int]) -> None:
        """Give each newly allocated block a page."""
        ...

    def move(self, own: Iterable[int], cached: Iterable[int]) -> None:
        """Move the pages of a request's own blocks to equal cached blocks that have none."""
        ...

    def touch(self, blocks: Sequence[int]) -> None:
        """Mark the pages in the window of an owner of these blocks as just used."""
        ...

    def send(self) -> None:
        """Send changes to the runner."""
        ...

    def take_unsent(self) -> list[tuple[int, int]]:
        """Return the changes that the runner does not know yet."""
        ...


class PrefixCache(Protocol):
    """A prefix cache behind `KVCacheManager`. Each method completes its changes before it emits."""

    @property
    def lookup(self) -> PrefixLookup:
        """The part of the cache that finds prefixes, and the only part that policies get."""
        ...

    @property
    def nodes(self) -> Mapping[int, Any]:
        """The nodes of the prefix tree by id; a snapshot names the fields that it reads."""
        ...

    @property
    def tick(self) -> int:
        """Logical time of the latest access; 0 if the cache does not count accesses."""
        ...

    @property
    def num_evictable_blocks(self) -> int:
        """The number of cached blocks that no owner uses."""
        ...

    @property
    def eviction_queue(self) -> list[int]:
        """Evictable blocks in the order of their eviction; empty if the order is not a queue."""
        ...

    def is_scheduled(self, block: int) -> bool:
        """Return whether a partly filled block can already be found, because this step fills it."""
        ...

    def attach(self, owner: BlockOwner, match: Any) -> None:
        """Give an owner the blocks of a match, so that they cannot be evicted."""
        ...

    def share(self, parent: Request, sample: Request) -> None:
        """Let a forked sample share all blocks of its parent."""
        ...

    def release(self, owner: BlockOwner, keep: int = 0) -> None:
        """Release all of an owner's blocks after the first `keep`."""
        ...

    def evict(self, needed_by: Request | None) -> None:
        """Evict at least one block for a request, or for an adopted prefix if `needed_by` is None.

        The caller has checked that a block can be evicted.
        """
        ...

    def clear(self) -> None:
        """Evict every block that no owner uses."""
        ...

    def adopt(self, match: Any, tokens: list[int]) -> Adopted:
        """Allocate and cache blocks for tokens that continue a match; the tokens fill whole blocks.

        The caller has checked that enough blocks are free, writes their KV and emits the event. The
        whole prefix counts as accessed.
        """
        ...

    def cache_scheduled(self, request: Request, end: int) -> None:
        """Note that a step is going to compute the tokens of a request up to `end`."""
        ...

    def cache_computed(self, request: Request) -> None:
        """Note that a step has computed a request's tokens up to `num_computed_tokens`."""
        ...

    def withdraw(self, requests: Sequence[Request], lost: Set[int] = frozenset()) -> None:
        """Remove from the cache the blocks of these requests that the step will not compute.

        The `lost` blocks are not computed either, so requests that use them lose them, too.
        """
        ...

    def check_integrity(self) -> None:
        """Raise AssertionError if the cache contradicts itself."""
        ...
