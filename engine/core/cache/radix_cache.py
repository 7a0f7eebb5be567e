"""The prefix cache of SGLang: a radix tree that holds the blocks it has cached.

A request's full blocks enter the tree at the end of the step that computes them, so a prefix can be
found from the next step on. A request locks its path, and whole unlocked leaves are evicted.
`radix_tree.py` has the tree; this file connects it to the block pool and the event log.

Source: SGLang's `python/sglang/srt/mem_cache/radix_cache.py`.
"""

from collections.abc import Mapping
from itertools import pairwise
from types import SimpleNamespace

from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.cache.prefix_cache import NO_REQUEST, Adopted, BlockOwner
from engine.core.cache.radix_tree import ROOT, Match, RadixNode, RadixTree
from engine.core.log import vocabulary as v
from engine.core.request import Request


class RadixCache(KVCacheManager):
    """A radix tree over the blocks of a pool. If the tree is disabled, it stays empty.

    extends_outputs  whether an output's node grows with each block; SGLang inserts the output at once
    """

    tree: RadixTree
    extends_outputs = True

    @property
    def nodes(self) -> Mapping[int, RadixNode]:  # type: ignore[override]
        """The tree's nodes by id."""
        return self.tree.nodes

    @property
    def tick(self) -> int:  # type: ignore[override]
        """The number of lock moves so far."""
        return self.tree.tick

    @property
    def num_available_blocks(self) -> int:
        """See `KVCacheManager`: blocks in unlocked nodes have no owner."""
        return len(self.pool.free) + self.tree.unlocked_blocks

    # Owners

    def attach(self, owner: BlockOwner, match: Match) -> None:
        """Give an owner the blocks of its match and lock their path. The caller emits the event."""
        if match.blocks:
            node = self._split_at_end(match)
            super().attach(owner, match)
            self.tree.move_lock(owner, node)

    def share_with(self, parent: Request, sample: Request) -> None:
        """Let a forked sample share all blocks and the lock of its parent."""
        super().share_with(parent, sample)
        self.tree.move_lock(sample, self.tree.nodes[parent.last_node])

    def free(self, owner: BlockOwner, keep: int = 0) -> None:
        """Release the blocks after the first `keep`, and the lock if none is kept.

        A request that ends after its prompt accesses its path once more, as SGLang's last checkpoint
        does. A request that is preempted, or aborted within its prompt, has no such checkpoint.

        With the prefix cache off, the tail of the table is the first to be allocated again, as in
        vLLM.
        """
        blocks = owner.block_table[keep:]
        self.pool.release(blocks if self.tree.enabled else blocks[::-1])
        del owner.block_table[keep:]
        if not keep:
            if (
                isinstance(owner, Request)
                and owner.finish_reason is not None
                and owner.num_computed_tokens >= owner.prompt_length
            ):
                for node in self.tree.path(self.tree.nodes[owner.last_node]):
                    self.tree.touch(node)
            owner.num_computed_tokens = 0
            self.tree.move_lock(owner, self.tree.root)

    # Evicting

    def evict(self, needed_by: int, reason: v.EvictionReason) -> None:
        """Evict the leaf that the eviction order chooses."""
        leaf = self.tree.next_victim()
        assert leaf is not None, "blocks were counted as evictable, but every leaf is locked"
        self._evict(leaf, needed_by, reason)

    def clear(self) -> None:
        """Evict every unlocked block."""
        while (leaf := self.tree.next_victim()) is not None:
            self._evict(leaf, NO_REQUEST, "cleared")

    def _evict(self, leaf: RadixNode, needed_by: int, reason: v.EvictionReason) -> None:
        self.tree.evict(leaf)
        self.pool.release(leaf.blocks)
        self._emit(v.RadixEvicted(leaf.id, needed_by, reason))
        if self.tiers is not None:
            self.tiers.evicted(leaf, leaf.blocks, reason)

    # Caching

    def adopt(self, match: Match, tokens: list[int]) -> Adopted:
        """Allocate blocks for tokens that continue a match, and put them into the tree as one node."""
        parent = self._split_at_end(match)
        blocks = self.pool.allocate(len(tokens) // self.block_size)
        node = self.tree.insert(parent, tokens, blocks)
        access = SimpleNamespace(last_node=ROOT)
        self.tree.move_lock(access, node)
        self.tree.move_lock(access, self.tree.root)
        return Adopted(parent.id, [node.id], blocks)

    def cache_computed(self, request: Request, up_to: int | None = None) -> None:
        """Put the full blocks that a request has computed into the tree, or its first `up_to` tokens.

        request.block_table: [ locked path | already cached by others | new to the tree | partial ]
                                       joined: freed, remapped     inserted

        Two requests that computed the same prefix at the same time have two copies of it. The
        request that is handled second is remapped to the cached copy, and its own blocks are released.
        """
        if not self.tree.enabled:
            return
        size = self.block_size
        node = self.tree.nodes[request.last_node]
        end = (request.num_computed_tokens if up_to is None else up_to) // size
        # The blocks of the locked path come first in the block table. If the last computed block is
        # the path's last block, there is nothing new.
        if end == 0 or request.block_table[end - 1] in node.blocks[-1:]:
            return
        start = 0
        for above in self.tree.path(node):
            start += len(above.blocks)
        match = self.tree.match(request.tokens[start * size :], limit=end - start, start=node)
        if match.blocks:
            node = self._join(request, start, match)
            start += len(match.blocks)
        if start < end:
            self._insert(request, node, start, end)

    def _join(self, request: Request, start: int, match: Match) -> RadixNode:
        node = self._split_at_end(match)
        end = start + len(match.blocks)
        own_blocks = request.block_table[start:end]
        if self.pages is not None:
            self.pages.move(own_blocks, match.blocks)
        self.pool.share(match.blocks)
        self.pool.release(own_blocks)
        request.block_table[start:end] = match.blocks
        self.tree.move_lock(request, node)
        self._emit(v.RadixJoined(request.id, node.id, match.blocks))
        return node

    def _insert(self, request: Request, node: RadixNode, start: int, end: int) -> None:
        """Insert new blocks below a node: a node for each chunk of the prompt, and one for the output.

        The output has a node of its own so that it can be evicted without the prompt. SGLang inserts it
        when the request ends; here the node grows with each block, because blocks can be found earlier.
        """
        size, writer = self.block_size, (request.id, request.preemptions)
        prompt_end = request.prompt_length // size
        cuts = [start, prompt_end, end] if start < prompt_end < end else [start, end]
        for first, last in pairwise(cuts):
            tokens = request.tokens[first * size : last * size]
            blocks = request.block_table[first:last]
            self.pool.share(blocks)
            grows = self.extends_outputs and first > prompt_end and node.writer == writer
            event: v.Event = v.RadixExtended(request.id, node.id, blocks)
            if not grows or not self.tree.extend(node, tokens, blocks):
                parent, node = node, self.tree.insert(node, tokens, blocks)
                node.writer = writer
                event = v.RadixInserted(request.id, node.id, parent.id, blocks)
            self.tree.move_lock(request, node)
            self._emit(event)

    def _split_at_end(self, match: Match) -> RadixNode:
        """Return the node that ends where the match ends; split an edge if no node does.

        As in SGLang, the access counts for the whole edge, including the part below the split.
        """
        if match.depth == len(match.node.blocks):
            return match.node
        upper = self.tree.split(match.node, match.depth)
        self.tree.touch(self.tree.nodes[match.node.id])  # a subclass may replace the node
        self._emit(v.RadixSplit(match.node.id, match.depth, upper.id))
        return upper

    def check_integrity(self) -> None:
        """Raise AssertionError unless the tree's links, sizes and counts agree."""
        self.tree.check_integrity()
