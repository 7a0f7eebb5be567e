"""The prefix cache of SGLang: a radix tree that holds the blocks it has cached.

A request's full blocks enter the tree at the end of the step that computes them, so a prefix can be
found from the next step on. A request locks its path, and whole unlocked leaves are evicted.
`radix_tree.py` has the tree; this file connects it to the block pool and the event log.

Source: SGLang's `python/sglang/srt/mem_cache/radix_cache.py`.
"""

from collections.abc import Callable, Mapping, Sequence, Set

from engine.core.cache.block_pool import BlockPool
from engine.core.cache.prefix_cache import NO_REQUEST, Adopted, BlockOwner, WindowPages
from engine.core.cache.radix_tree import Match, RadixNode, RadixTree
from engine.core.log.vocabulary import (
    Event,
    EvictionReason,
    RadixEvicted,
    RadixExtended,
    RadixInserted,
    RadixJoined,
    RadixSplit,
)
from engine.core.request import Request


class RadixCache:
    """A radix tree over the blocks of a pool. If the tree is disabled, it stays empty."""

    def __init__(
        self,
        pool: BlockPool,
        tree: RadixTree,
        emit: Callable[[Event], None],
        pages: WindowPages | None = None,
    ) -> None:
        self.lookup = tree
        self._tree = tree
        self._pool = pool
        self._pages = pages
        self._emit = emit

    @property
    def nodes(self) -> Mapping[int, RadixNode]:
        """The tree's nodes by id."""
        return self._tree.nodes

    @property
    def tick(self) -> int:
        """The number of lock moves so far."""
        return self._tree.tick

    @property
    def num_evictable_blocks(self) -> int:
        """The number of blocks in unlocked nodes."""
        return self._tree.unlocked_blocks

    @property
    def eviction_queue(self) -> list[int]:
        """Always empty, because the victim is found by comparing leaves, not in a queue."""
        return []

    def is_scheduled(self, block: int) -> bool:  # noqa: ARG002
        """Return False, because only computed blocks are in the tree."""
        return False

    # Owners

    def attach(self, owner: BlockOwner, match: Match) -> None:
        """Give an owner the blocks of its match and lock their path. The caller emits the event."""
        node = self._split_at_end(match)
        self._pool.share(match.blocks)
        owner.block_table = list(match.blocks)
        owner.num_computed_tokens = len(match.blocks) * self._tree.block_size
        self._lock(owner, node)

    def share(self, parent: Request, sample: Request) -> None:
        """Let a forked sample share all blocks and the lock of its parent."""
        sample.block_table = list(parent.block_table)
        self._pool.share(sample.block_table)
        self._lock(sample, self._tree.nodes[parent.last_node])

    def release(self, owner: BlockOwner, keep: int = 0) -> None:
        """Release the blocks after the first `keep`, and the lock if none is kept.

        With the prefix cache off, the tail of the table is the first to be allocated again, as in
        vLLM.
        """
        blocks = owner.block_table[keep:]
        self._pool.release(blocks if self._tree.enabled else blocks[::-1])
        del owner.block_table[keep:]
        if not keep:
            self._lock(owner, self._tree.root)

    # Evicting

    def evict(self, needed_by: Request | None) -> None:
        """Evict the leaf that the eviction order chooses."""
        leaf = self._tree.next_victim()
        assert leaf is not None, "blocks were counted as evictable, but every leaf is locked"
        if needed_by is None:
            self._evict(leaf, NO_REQUEST, "adopted")
        else:
            self._evict(leaf, needed_by.id, "room")

    def clear(self) -> None:
        """Evict every unlocked block."""
        while (leaf := self._tree.next_victim()) is not None:
            self._evict(leaf, NO_REQUEST, "cleared")

    def _evict(self, leaf: RadixNode, needed_by: int, reason: EvictionReason) -> None:
        self._tree.evict(leaf)
        self._pool.release(leaf.blocks)
        self._emit(RadixEvicted(leaf.id, needed_by, reason))

    # Caching

    def adopt(self, match: Match, tokens: list[int]) -> Adopted:
        """Allocate blocks for tokens that continue a match, and put them into the tree as one node."""
        parent = self._split_at_end(match)
        blocks = self._pool.allocate(len(tokens) // self._tree.block_size)
        node = self._tree.insert(parent, tokens, blocks)
        self._tree.move_lock(self._tree.root, node)
        self._tree.move_lock(node, self._tree.root)
        return Adopted(parent.id, [node.id], blocks)

    def cache_scheduled(self, request: Request, end: int) -> None:
        """Do nothing, because a block enters the tree only when it is computed."""

    def withdraw(self, requests: Sequence[Request], lost: Set[int] = frozenset()) -> None:
        """Do nothing, because blocks that were only scheduled are not in the tree."""

    def cache_computed(self, request: Request) -> None:
        """Put the full blocks that a request has computed into the tree.

        request.block_table: [ locked path | already cached by others | new to the tree | partial ]
                                       joined: freed, remapped     inserted

        Two requests that computed the same prefix at the same time have two copies of it. The
        request that is handled second is remapped to the cached copy, and its own blocks are released.
        """
        if not self._tree.enabled:
            return
        size = self._tree.block_size
        node = self._tree.nodes[request.last_node]
        end = request.num_computed_tokens // size
        # The blocks of the locked path come first in the block table. If the last computed block is
        # the path's last block, there is nothing new.
        if end == 0 or request.block_table[end - 1] in node.blocks[-1:]:
            return
        start = sum(len(above.blocks) for above in self._tree.path(node))
        match = self._tree.match(request.tokens[start * size :], limit=end - start, start=node)
        if match.blocks:
            node = self._join(request, start, match)
            start += len(match.blocks)
        if start < end:
            self._insert(request, node, start, end)

    def _join(self, request: Request, start: int, match: Match) -> RadixNode:
        node = self._split_at_end(match)
        end = start + len(match.blocks)
        own_blocks = request.block_table[start:end]
        if self._pages is not None:
            self._pages.move(own_blocks, match.blocks)
        self._pool.share(match.blocks)
        self._pool.release(own_blocks)
        request.block_table[start:end] = match.blocks
        self._lock(request, node)
        self._emit(RadixJoined(request.id, node.id, match.blocks))
        return node

    def _insert(self, request: Request, parent: RadixNode, start: int, end: int) -> None:
        """Insert new blocks: a node for each chunk of the prompt, and one for the output.

        The output has a node of its own so that it can be evicted without the prompt. SGLang inserts it
        when the request ends; here the node grows with each block, because blocks can be found earlier.
        """
        size = self._tree.block_size
        prompt_end = request.prompt_length // size
        if start < prompt_end < end:
            parent = self._insert_node(request, parent, start, prompt_end)
            start = prompt_end
        is_output = start > prompt_end and parent.writer == (request.id, request.preemptions)
        if is_output and self._tree.can_extend(parent):
            blocks = request.block_table[start:end]
            self._pool.share(blocks)
            self._tree.extend(parent, request.tokens[start * size : end * size], blocks)
            self._lock(request, parent)
            self._emit(RadixExtended(request.id, parent.id, blocks))
        else:
            self._insert_node(request, parent, start, end)

    def _insert_node(self, request: Request, parent: RadixNode, start: int, end: int) -> RadixNode:
        blocks, size = request.block_table[start:end], self._tree.block_size
        self._pool.share(blocks)
        node = self._tree.insert(parent, request.tokens[start * size : end * size], blocks)
        node.writer = request.id, request.preemptions
        self._lock(request, node)
        self._emit(RadixInserted(request.id, node.id, parent.id, blocks))
        return node

    def _split_at_end(self, match: Match) -> RadixNode:
        """Return the node that ends where the match ends; split an edge if no node does.

        As in SGLang, the access counts for the whole edge, including the part below the split.
        """
        if match.depth == len(match.node.blocks):
            return match.node
        upper = self._tree.split(match.node, match.depth)
        self._tree.touch(self._tree.nodes[match.node.id])  # a subclass may replace the node
        self._emit(RadixSplit(match.node.id, match.depth, upper.id))
        return upper

    def _lock(self, owner: BlockOwner, node: RadixNode) -> None:
        self._tree.move_lock(self._tree.nodes[owner.last_node], node)
        owner.last_node = node.id

    def check_integrity(self) -> None:
        """Raise AssertionError unless the tree's links, sizes and counts agree."""
        self._tree.check_integrity()
