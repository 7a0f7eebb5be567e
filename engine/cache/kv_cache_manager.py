"""The KV cache manager: block pool and radix tree together.

Each method completes its changes to pool, tree and request before it emits its event, so the log
never shows an intermediate state. One rule covers all references: a block's count is the number of
block tables that contain it, plus one while it is in the tree.

Source: vLLM's `vllm/v1/core/kv_cache_manager.py`; the tree is that of SGLang's
`python/sglang/srt/mem_cache/radix_cache.py`.

Differs from vLLM: there, block tables are append-only and full blocks are cached when they are
scheduled. Here they are cached at the end of the step that computes them, and a request whose new
blocks are already cached is remapped to the cached copy, as in SGLang. Samples of one prompt share
its partly filled block until the first write; vLLM runs samples as separate requests that share
full blocks only.
"""

from collections.abc import Callable
from typing import Protocol

from engine.cache.block_pool import BlockPool
from engine.cache.radix_tree import Match, RadixNode, RadixTree
from engine.events.vocabulary import (
    BlockCopied,
    BlocksAllocated,
    BlocksTrimmed,
    Event,
    EvictionReason,
    RadixEvicted,
    RadixExtended,
    RadixInserted,
    RadixJoined,
    RadixSplit,
)
from engine.scheduling.request import Request

NO_REQUEST = -1


class BlockOwner(Protocol):
    """An owner of a block table and a tree lock: a request, or a hold (`holds.py`)."""

    block_table: list[int]
    num_computed_tokens: int
    last_node: int


class KVCacheManager:
    """The blocks of an engine. With `prefix_cache=False` the tree stays empty."""

    def __init__(
        self,
        pool: BlockPool,
        tree: RadixTree,
        *,
        prefix_cache: bool,
        emit: Callable[[Event], None],
    ) -> None:
        self.pool = pool
        self.tree = tree
        self.tree.enabled = prefix_cache
        self.block_size = tree.block_size
        self._emit = emit

    # Counting

    @property
    def num_available_blocks(self) -> int:
        """The number of blocks that can be allocated: free ones and unlocked ones in the tree."""
        return len(self.pool.free) + self.tree.unlocked_blocks

    def num_available_blocks_beside(self, match: Match) -> int:
        """Count the blocks that a request can allocate once it has locked `match`."""
        return self.num_available_blocks - (len(match.blocks) - self.tree.locked_part(match))

    def match_prefix(self, request: Request) -> Match:
        """Return the cached prefix of a waiting request. Changes nothing.

        At least one token is left to compute, because its logits are needed. A prompt that still
        has tokens to score is computed in full, because the cache keeps no log-probabilities.
        """
        reads = self.tree.enabled and not request.unscored
        limit = (len(request.tokens) - 1) // self.block_size if reads else 0
        return self.tree.match(request.tokens, limit)

    def blocks_needed(self, request: Request, count: int) -> int:
        """Count the blocks to allocate so that the next `count` tokens can be written."""
        total = -(-(request.num_computed_tokens + count) // self.block_size)
        return total - len(request.block_table) + self.writes_shared_block(request)

    def writes_shared_block(self, request: Request) -> bool:
        """Return whether the next token goes into a shared block, which must be copied first."""
        partly_filled = request.num_computed_tokens % self.block_size != 0
        return partly_filled and self.pool.refs[request.block_table[-1]] > 1

    # Allocating

    def attach_prefix(self, owner: BlockOwner, match: Match) -> None:
        """Give a request the blocks of its match and lock their path. The caller emits."""
        node = self._split_at_end(match)
        self.pool.share(match.blocks)
        owner.block_table = list(match.blocks)
        owner.num_computed_tokens = len(match.blocks) * self.block_size
        self._lock(owner, node)

    def allocate_slots(self, request: Request, count: int) -> tuple[int, int] | None:
        """Make slots for the next `count` tokens writable: evict, copy on write, allocate.

        The caller must first compare `blocks_needed` with `num_available_blocks`. Returns (source,
        destination) when a shared, partly filled block has to be copied before the forward pass.
        """
        need = self.blocks_needed(request, count)
        while len(self.pool.free) < need:
            leaf = self.tree.next_victim()
            assert leaf is not None, "the available blocks were counted, yet none can be evicted"
            self._evict(leaf, request.id, "room")
        copy = None
        if self.writes_shared_block(request):
            source = request.block_table[-1]
            block = request.block_table[-1] = self.pool.writable(source)
            self._emit(BlockCopied(request.id, len(request.block_table) - 1, source, block))
            copy = source, block
            need -= 1
        if need:
            blocks = self.pool.allocate(need)
            request.block_table += blocks
            self._emit(BlocksAllocated(request.id, blocks))
        return copy

    def share_with(self, parent: Request, sample: Request) -> None:
        """Let a forked sample share all blocks and the lock of its parent."""
        sample.block_table = list(parent.block_table)
        sample.num_computed_tokens = parent.num_computed_tokens
        self.pool.share(sample.block_table)
        self._lock(sample, self.tree.nodes[parent.last_node])

    # Releasing

    def free(self, owner: BlockOwner) -> None:
        """Release all blocks and the lock of an owner. Safe to call twice."""
        self.pool.release(owner.block_table)
        owner.block_table = []
        owner.num_computed_tokens = 0
        self._lock(owner, self.tree.root)

    def trim(self, request: Request) -> None:
        """Release the blocks past the computed tokens, which rejected drafts left unused."""
        keep = -(-request.num_computed_tokens // self.block_size)
        if keep < len(request.block_table):
            self.pool.release(request.block_table[keep:])
            del request.block_table[keep:]
            self._emit(BlocksTrimmed(request.id, keep))

    def clear(self) -> None:
        """Evict every unlocked block."""
        while (leaf := self.tree.next_victim()) is not None:
            self._evict(leaf, NO_REQUEST, "cleared")

    # Caching

    def cache_full_blocks(self, request: Request) -> None:
        """Put the full blocks that a request has computed into the tree.

        request.block_table: [ locked path | already cached by others | new to the tree | partial ]
                                       joined: freed, remapped     inserted

        Two requests that computed the same prefix at the same time hold two copies of it. The
        second one to get here is remapped to the cached copy, and its own blocks are released.
        """
        if not self.tree.enabled:
            return
        size = self.block_size
        node = self.tree.nodes[request.last_node]
        start = sum(len(above.blocks) for above in self.tree.path(node))
        end = request.num_computed_tokens // size
        if start == end:
            return
        match = self.tree.match(request.tokens[start * size :], limit=end - start, start=node)
        if match.blocks:
            node = self._join(request, start, match)
            start += len(match.blocks)
        if start < end:
            self._insert(request, node, start, end)

    def _join(self, request: Request, start: int, match: Match) -> RadixNode:
        node = self._split_at_end(match)
        end = start + len(match.blocks)
        own = request.block_table[start:end]
        self.pool.share(match.blocks)
        self.pool.release(own)
        request.block_table[start:end] = match.blocks
        self._lock(request, node)
        self._emit(RadixJoined(request.id, node.id, match.blocks))
        return node

    def _insert(self, request: Request, parent: RadixNode, start: int, end: int) -> None:
        blocks = request.block_table[start:end]
        tokens = request.tokens[start * self.block_size : end * self.block_size]
        self.pool.share(blocks)
        if self.tree.can_extend(parent):
            self.tree.extend(parent, tokens, blocks)
            self._lock(request, parent)
            self._emit(RadixExtended(request.id, parent.id, blocks))
        else:
            node = self.tree.insert(parent, tokens, blocks)
            self._lock(request, node)
            self._emit(RadixInserted(request.id, node.id, parent.id, blocks))

    def _split_at_end(self, match: Match) -> RadixNode:
        """Return the node that ends where the match ends; split an edge if no node does."""
        if match.depth == len(match.node.blocks):
            return match.node
        upper = self.tree.split(match.node, match.depth)
        self._emit(RadixSplit(match.node.id, match.depth, upper.id))
        return upper

    def _lock(self, owner: BlockOwner, node: RadixNode) -> None:
        self.tree.move_lock(self.tree.nodes[owner.last_node], node)
        owner.last_node = node.id

    def _evict(self, leaf: RadixNode, needed_by: int, reason: EvictionReason) -> None:
        self.tree.evict(leaf)
        self.pool.release(leaf.blocks)
        self._emit(RadixEvicted(leaf.id, needed_by, reason))
