"""The KV cache manager: block tables over a block pool, and what both kinds of prefix cache share.

Two classes add a prefix cache, each as its original engine does:

radix  `radix_cache.py`: SGLang's tree. A prefix can be found from the end of the step that computes
       it, whole leaves are evicted, and duplicates are merged.
hash   `hash_cache.py`: vLLM's block pool. A block can be found from the moment it is scheduled, single
       blocks are evicted, and duplicates are kept.

Each method completes its changes to pool, cache and request before it emits its event, so the log
never shows an intermediate state. One rule covers all references: a block's count is the number of
block tables that contain it, plus one while the prefix cache holds it. A block with count 0 is on the
free stack, and a cached block with count 1 can be evicted.

Source: vLLM's `vllm/v1/core/kv_cache_manager.py`.

Differs from vLLM, which runs samples as separate requests that share full blocks only. Here the
samples of one prompt also share its partly filled block until the first write.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from engine.core.cache.block_pool import BlockPool
from engine.core.cache.prefix_cache import (
    Adopted,
    BlockOwner,
    PrefixLookup,
    PrefixMatch,
    WindowPages,
)
from engine.core.log import vocabulary as v
from engine.core.request import Request


class KVCacheManager(ABC):
    """The blocks of an engine.

    tree    finds all cached prefixes
    lookup  finds the cached prefixes that a request can use, and is the only part that policies get
    pages   the window pages of a model with sliding layers; None if no layer slides, or if memory has
            room for all layers of every block
    nodes   the nodes of the prefix tree by id; a snapshot names the fields that it reads
    tick    logical time of the latest access; 0 if the cache does not count accesses
    tiers   the memory below it, if there is any; see `engine/extensions/tiers.py`
    hits    of the latest owner; see `Admitted`
    """

    tree: PrefixLookup
    nodes: Mapping[int, Any]
    tick = 0
    tiers: Any = None
    hits: Sequence[int] = ()

    def __init__(
        self,
        pool: BlockPool,
        tree: PrefixLookup,
        emit: Callable[[v.Event], None],
        pages: WindowPages | None,
    ) -> None:
        self.pool = pool
        self.tree = tree
        self.pages = pages
        self.lookup = tree if pages is None else pages.limited(tree)
        self.block_size = tree.block_size
        self._emit = emit

    # What the two kinds of prefix cache do in their own ways

    @property
    @abstractmethod
    def num_available_blocks(self) -> int:
        """The number of blocks that can be allocated: free ones, and cached ones without an owner."""

    @property
    def eviction_queue(self) -> list[int]:
        """Evictable blocks in the order of their eviction; empty if the order is not a queue."""
        return []

    @abstractmethod
    def free(self, owner: BlockOwner, keep: int = 0) -> None:
        """Release all of an owner's blocks after the first `keep`. Safe to call twice."""

    @abstractmethod
    def evict(self, needed_by: int, reason: v.EvictionReason) -> None:
        """Evict at least one block. The caller has checked that one can be evicted."""

    @abstractmethod
    def clear(self) -> None:
        """Evict every block that no owner uses."""

    @abstractmethod
    def adopt(self, match: Any, tokens: list[int]) -> Adopted:
        """Allocate and cache blocks for tokens that continue a match; the tokens fill whole blocks.

        The caller has checked that enough blocks are free, writes their KV and emits the event. The
        whole prefix counts as accessed.
        """

    @abstractmethod
    def cache_computed(self, request: Request) -> None:
        """Note that a step has computed a request's tokens up to `num_computed_tokens`."""

    def withdraw(  # noqa: B027 (the tree has only computed blocks)
        self, requests: Sequence[Request], lost: Set[int] = frozenset()
    ) -> None:
        """Remove from the cache the blocks of these requests that the step will not compute.

        The `lost` blocks are not computed either, so requests that use them lose them, too.
        """

    @abstractmethod
    def check_integrity(self) -> None:
        """Raise AssertionError if the cache contradicts itself."""

    # Counting

    def num_available_blocks_beside(self, match: PrefixMatch) -> int:
        """Count the blocks that a request can allocate once it has attached `match`."""
        return self.num_available_blocks - sum(map(self.is_evictable, match.blocks))

    def is_evictable(self, cached_block: int) -> bool:
        """Return whether only the prefix cache holds this block."""
        return self.pool.refs[cached_block] == 1

    def match_prefix(self, request: Request) -> PrefixMatch:
        """Return the cached prefix of a waiting request. Changes nothing.

        At least one token is left to compute, because its logits are needed. A prompt that is scored
        is computed in full, because the cache keeps no log-probabilities. As in vLLM and SGLang, that
        is also so when the request resumes.
        """
        reads = self.lookup.enabled and request.params.prompt_logprobs is None
        limit = (len(request.tokens) - 1) // self.block_size if reads else 0
        return self.lookup.match(request.tokens, limit)

    def blocks_needed(self, request: Request, count: int) -> int:
        """Count the blocks to allocate so that the next `count` tokens can be written."""
        total = -(-(request.num_scheduled_tokens + count) // self.block_size)
        return total - len(request.block_table) + self.writes_shared_block(request)

    def writes_shared_block(self, request: Request) -> bool:
        """Return whether the next token goes into a shared block, which must be copied first."""
        index, filled = divmod(request.num_scheduled_tokens, self.block_size)
        return filled > 0 and self.pool.refs[request.block_table[index]] > 1

    # Allocating

    def attach(self, owner: BlockOwner, match: Any) -> None:
        """Give an owner the blocks of its match, so that they stay. The caller emits the event."""
        self.pool.share(match.blocks)
        owner.block_table = list(match.blocks)
        owner.num_computed_tokens = len(match.blocks) * self.block_size
        if self.pages is not None:
            self.pages.touch(owner.block_table)

    def allocate_slots(
        self, request: Request, count: int, drafts: int = 0
    ) -> list[tuple[int, int]] | None:
        """Make slots for the next `count` tokens writable: evict, copy on write, allocate.

        The last `drafts` of the tokens may be rejected. If the request writes to a shared block,
        returns the copy to make before the forward pass, as (source, destination). Returns None, and
        changes nothing, if too few blocks are available.
        """
        copies: list[tuple[int, int]] = []
        if need := self.blocks_needed(request, count):
            if need > self.num_available_blocks:
                return None
            while len(self.pool.free) < need:
                self.evict(request.id, "room")
            if self.pages is not None:
                self.pages.make_room(need, request.id)
            if self.writes_shared_block(request):
                source = request.block_table[-1]
                block = request.block_table[-1] = self.pool.writable(source)
                if self.pages is not None:
                    self.pages.assign([block])
                self._emit(v.BlockCopied(request.id, len(request.block_table) - 1, source, block))
                copies.append((source, block))
                need -= 1
            if need:
                blocks = self.pool.allocate(need)
                request.block_table += blocks
                if self.pages is not None:
                    self.pages.assign(blocks)
                self._emit(v.BlocksAllocated(request.id, blocks))
        return copies

    def share_with(self, parent: Request, sample: Request) -> None:
        """Let a forked sample share all blocks of its parent."""
        sample.block_table = list(parent.block_table)
        self.pool.share(sample.block_table)
        sample.num_computed_tokens = parent.num_computed_tokens

    def trim(self, request: Request) -> None:
        """Release the blocks past the scheduled tokens, which rejected drafts left unused."""
        keep = -(-request.num_scheduled_tokens // self.block_size)
        if keep < len(request.block_table):
            self.free(request, keep)
            self._emit(v.BlocksTrimmed(request.id, keep))
