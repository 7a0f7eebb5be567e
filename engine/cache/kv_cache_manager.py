"""Block pool and radix tree together: what a request holds, and every way that changes.

Each method changes pool, tree and request completely and only then emits its event, so that the log
never shows a half-made state. Who holds a block follows one rule: the block tables that name it,
plus one while the tree has it.

vLLM keeps this in `vllm/v1/core/kv_cache_manager.py`, SGLang in
`python/sglang/srt/mem_cache/radix_cache.py` (`cache_unfinished_req`, `cache_finished_req`).
"""

from collections.abc import Callable
from typing import Protocol

from engine.cache.block_pool import BlockPool, allocate_checked, writable_checked
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

NOBODY = -1


class Holder(Protocol):
    """Whoever has a block table and a lock: a request, or a hold (`holds.py`)."""

    block_table: list[int]
    num_computed_tokens: int
    last_node: int


class KVCacheManager:
    """The KV memory of an engine. `prefix_cache=False` leaves the tree empty."""

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
        self.prefix_cache = prefix_cache
        self.block_size = tree.block_size
        self._emit = emit

    # How much is there

    @property
    def num_available_blocks(self) -> int:
        """Blocks that can be had: the free ones, and those in the tree that nobody has locked."""
        return len(self.pool.free) + self.tree.unlocked_blocks

    def num_available_blocks_beside(self, match: Match) -> int:
        """Blocks that can be had by a request that is about to lock `match`."""
        return self.num_available_blocks - (len(match.blocks) - self.tree.locked_part(match))

    def match_prefix(self, request: Request) -> Match:
        """The cached prefix of a waiting request; a peek that touches nothing.

        At least one token is left to compute, because something must produce logits. A prompt whose
        tokens are still to be scored is computed whole: KV tells nothing about probabilities.
        """
        reads = self.prefix_cache and not request.unscored
        limit = (len(request.tokens) - 1) // self.block_size if reads else 0
        return self.tree.match(request.tokens, limit)

    def blocks_needed(self, request: Request, count: int) -> int:
        """Blocks to take before the next `count` tokens of `request` can be written."""
        total = -(-(request.num_computed_tokens + count) // self.block_size)
        return total - len(request.block_table) + self.writes_shared_block(request)

    def writes_shared_block(self, request: Request) -> bool:
        """Whether the next token's KV goes into a block that other samples read: it is copied first."""
        partly_filled = request.num_computed_tokens % self.block_size != 0
        return partly_filled and self.pool.refs[request.block_table[-1]] > 1

    # A request takes blocks

    def attach_prefix(self, holder: Holder, match: Match) -> None:
        """Give an admitted request the blocks of its match and lock their path. The caller emits."""
        node = self._end_at(match)
        self.pool.share(match.blocks)
        holder.block_table = list(match.blocks)
        holder.num_computed_tokens = len(match.blocks) * self.block_size
        self._lock(holder, node)

    def allocate_slots(self, request: Request, count: int) -> tuple[int, int] | None:
        """Make `count` tokens after the computed ones writable: evict, copy on write, allocate.

        The caller has checked `blocks_needed` against `room`. Returns (source, destination) when
        a shared, partly filled block has to be copied before the forward pass.
        """
        need = self.blocks_needed(request, count)
        self._make_room(need, request)
        copy = None
        if self.writes_shared_block(request):
            copy = self._copy_last_block(request)
            need -= 1
        if need:
            blocks = allocate_checked(self.pool, need)
            request.block_table += blocks
            self._emit(BlocksAllocated(request.id, blocks))
        return copy

    def share_with(self, parent: Request, sample: Request) -> None:
        """A fork: the sample reads all of its parent's blocks and locks its path. The caller emits."""
        sample.block_table = list(parent.block_table)
        sample.num_computed_tokens = parent.num_computed_tokens
        self.pool.share(sample.block_table)
        self._lock(sample, self.tree.nodes[parent.last_node])

    # A request gives blocks back

    def free(self, holder: Holder) -> None:
        """Take everything away: blocks, computed tokens, lock. Harmless when repeated."""
        self.pool.release(holder.block_table)
        holder.block_table = []
        holder.num_computed_tokens = 0
        self._lock(holder, self.tree.root)

    def trim(self, request: Request) -> None:
        """Give back blocks beyond the computed tokens: rejected drafts left them empty."""
        keep = -(-request.num_computed_tokens // self.block_size)
        if keep < len(request.block_table):
            self.pool.release(request.block_table[keep:])
            del request.block_table[keep:]
            self._emit(BlocksTrimmed(request.id, keep))

    def clear(self) -> None:
        """Evict everything that nobody has locked."""
        while (leaf := self.tree.next_victim()) is not None:
            self._evict(leaf, NOBODY, "cleared")

    # The tree learns

    def cache_full_blocks(self, request: Request) -> None:
        """Put the request's newly full blocks into the tree.

        request.block_table: [ locked path | already cached by others | new to the tree | partial ]
                                       joined: freed, remapped     inserted

        Two requests that computed the same prefix at the same time hold the same tokens twice; the
        second one to get here is remapped to the first one's blocks and its own go free.
        """
        if not self.prefix_cache:
            return
        node = self.tree.nodes[request.last_node]
        known = sum(len(above.blocks) for above in self.tree.path(node))
        full = request.num_computed_tokens // self.block_size
        if full == known:
            return
        match = self.tree.match(
            request.tokens[known * self.block_size :], limit=full - known, start=node
        )
        if match.blocks:
            node = self._join(request, known, match)
            known += len(match.blocks)
        if full > known:
            self._add(request, node, known, full)

    def _join(self, request: Request, at: int, match: Match) -> RadixNode:
        node = self._end_at(match)
        end = at + len(match.blocks)
        own = request.block_table[at:end]
        self.pool.share(match.blocks)
        self.pool.release(own)
        request.block_table[at:end] = match.blocks
        self._lock(request, node)
        self._emit(RadixJoined(request.id, node.id, match.blocks))
        return node

    def _add(self, request: Request, parent: RadixNode, start: int, end: int) -> None:
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

    # Small verbs

    def _end_at(self, match: Match) -> RadixNode:
        """The node that ends exactly where the match ends; cuts an edge where there is none."""
        if match.depth == len(match.node.blocks):
            return match.node
        upper = self.tree.split(match.node, match.depth)
        self._emit(RadixSplit(match.node.id, match.depth, upper.id))
        return upper

    def _lock(self, holder: Holder, node: RadixNode) -> None:
        self.tree.move_lock(self.tree.nodes[holder.last_node], node)
        holder.last_node = node.id

    def _copy_last_block(self, request: Request) -> tuple[int, int]:
        source = request.block_table[-1]
        block = writable_checked(self.pool, source)
        request.block_table[-1] = block
        self._emit(BlockCopied(request.id, len(request.block_table) - 1, source, block))
        return source, block

    def _make_room(self, blocks: int, needed_by: Request) -> None:
        while len(self.pool.free) < blocks:
            leaf = self.tree.next_victim()
            assert leaf is not None, "room was checked, yet nothing is left to evict"
            self._evict(leaf, needed_by.id, "room")

    def _evict(self, leaf: RadixNode, needed_by: int, reason: EvictionReason) -> None:
        self.tree.evict(leaf)
        self.pool.release(leaf.blocks)
        self._emit(RadixEvicted(leaf.id, needed_by, reason))
