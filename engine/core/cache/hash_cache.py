"""The prefix cache of vLLM: full blocks in a hash table, and one queue of evictable blocks.

A full block's key is its tokens together with the key of the block before it, so equal keys mean equal
prefixes. Three rules differ from the radix tree (`radix_cache.py`):

1. A block can be found from the moment it is *scheduled*. That is sound, because in each layer
   attention writes all new keys and values before it reads any. So equal prompts that are admitted in
   one step share their blocks.
2. Block tables only ever grow at their end. If two requests compute the same block at the same time,
   both copies are kept, and each is evicted on its own.
3. When the last owner of a cached block releases it, the block joins the end of a queue; the blocks
   of one table join from the last to the first. The block at the front of the queue is evicted first.
   So the least recently used prefix is evicted first, starting at its end.

A planned step is not guaranteed to run: its request may be preempted in the same step, the plan may be
dropped, or the forward pass may fail. Blocks that were only scheduled are then withdrawn before a
request can read them.

A node stands for a key. It has one block, or several if there are duplicates; a match finds the
oldest one.

Source: vLLM's `vllm/v1/core/block_pool.py` and `vllm/v1/core/single_type_kv_cache_manager.py`.

Differs from vLLM in three ways. vLLM's key is a SHA-256 hash of the tokens and of the previous block's
hash; here it is the tokens themselves and the previous node's number, so keys cannot collide. vLLM
keeps free and evictable blocks in one queue, with the blocks without a key at its front; here those
blocks are in the pool's free stack. vLLM does not withdraw the blocks of a request that is preempted in
the step that scheduled them.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from engine.core.cache.block_pool import BlockPool
from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.cache.prefix_cache import (
    NO_REQUEST,
    Adopted,
    BlockOwner,
    WindowPages,
)
from engine.core.log import vocabulary as v
from engine.core.request import Request

ROOT = 0
# The previous node's id, the block's tokens and, for a first block, its `extra_key`.
_Key = tuple[int, tuple[int, ...], tuple[str, ...]]


@dataclass(slots=True, eq=False)
class HashNode:
    """A key of the hash table.

    depth   blocks from the beginning of the prefix to the end of this one
    extra_key  of a first block: what else its KV depends on, such as an adapter; usually nothing
    blocks  the block that a match finds: the oldest copy
    copies  the other copies, oldest first
    """

    # A snapshot reads these two, but reference counts replace locks and the queue replaces times.
    lock_ref: ClassVar[int] = 0
    last: ClassVar[int] = 0

    id: int
    parent: "HashNode | None"
    tokens: tuple[int, ...] = ()
    depth: int = 0
    extra_key: tuple[str, ...] = ()
    blocks: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)


class HashMatch(NamedTuple):
    """The cached prefix of a token sequence: its last node, and a block for each node."""

    node: HashNode
    blocks: list[int]


class HashCache(KVCacheManager):
    """A hash table over the full blocks of a pool. The queue keeps the order of accesses."""

    enabled = True

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        emit: Callable[[v.Event], None],
        pages: WindowPages | None = None,
    ) -> None:
        self.block_size = block_size
        super().__init__(pool, self, emit, pages)
        self._root = HashNode(ROOT, None)
        self.nodes: dict[int, HashNode] = {ROOT: self._root}
        self._by_key: dict[_Key, HashNode] = {}
        self._node_of: dict[int, HashNode] = {}  # block -> its node
        self._queue: OrderedDict[int, None] = OrderedDict()  # cached blocks without an owner
        self._next_id = 1

    @property
    def num_available_blocks(self) -> int:
        """See `KVCacheManager`."""
        return len(self.pool.free) + len(self._queue)

    @property
    def eviction_queue(self) -> list[int]:
        """The cached blocks that no owner uses, in the order in which they will be evicted."""
        return list(self._queue)

    def match(self, tokens: Sequence[int], limit: int) -> HashMatch:
        """Return the longest cached prefix of `tokens`, at most `limit` blocks. Changes nothing."""
        node, blocks, size = self._root, list[int](), self.block_size
        extra_key = getattr(tokens, "extra_key", ())
        for start in range(0, limit * size, size):
            child = self._by_key.get((node.id, tuple(tokens[start : start + size]), extra_key))
            if child is None:
                break
            node, extra_key = child, ()
            blocks.append(node.blocks[0] if self.pages is None else self._with_page(node))
        return HashMatch(node, blocks)

    def _with_page(self, node: HashNode) -> int:
        """Return the oldest copy that has a window page, or the oldest copy if none has one."""
        assert self.pages is not None
        copies = [*node.blocks, *node.copies]
        return next(filter(self.pages.has_page, copies), copies[0])

    # Owners

    def attach(self, owner: BlockOwner, match: HashMatch) -> None:
        """Give an owner the blocks of its match. The caller emits the event."""
        for block in match.blocks:
            self._queue.pop(block, None)
        super().attach(owner, match)
        owner.last_node = match.node.id

    def share_with(self, parent: Request, sample: Request) -> None:
        """Let a forked sample share all blocks of its parent."""
        super().share_with(parent, sample)
        sample.last_node = parent.last_node

    def writes_shared_block(self, request: Request) -> bool:
        """Return whether the next token goes into a shared block, which must be copied first.

        A block that became findable earlier in this step needs no copy, because the requests that
        found it read only the tokens that this request writes.
        """
        if not super().writes_shared_block(request):
            return False
        index = request.num_scheduled_tokens // self.block_size
        return request.block_table[index] not in self._node_of

    def allocate_slots(
        self, request: Request, count: int, drafts: int = 0
    ) -> list[tuple[int, int]] | None:
        """Make slots writable, see `KVCacheManager`, and the full blocks among them findable."""
        copies = super().allocate_slots(request, count)
        if copies is not None:
            # A placeholder's token id is not known yet, so its block cannot have a key.
            end = min(request.num_scheduled_tokens + count - drafts, len(request.tokens))
            self.cache_scheduled(request, end)
        return copies

    def free(self, owner: BlockOwner, keep: int = 0) -> None:
        """Release the blocks after the first `keep`; the tail is allocated or evicted first."""
        blocks = owner.block_table[keep:]
        for block in reversed(blocks):
            if block in self._node_of and self.pool.refs[block] == 2:  # this owner and the cache
                self._queue[block] = None
        self.pool.release(blocks[::-1])
        del owner.block_table[keep:]
        node = self.nodes[owner.last_node]
        while node.depth > keep:
            assert node.parent is not None
            node = node.parent
        owner.last_node = node.id
        if not keep:
            owner.num_computed_tokens = 0

    # Evicting

    def evict(self, needed_by: int, reason: v.EvictionReason) -> None:
        """Evict the block at the front of the queue."""
        self._evict(1, needed_by, reason)

    def clear(self) -> None:
        """Evict every block in the queue."""
        self._evict(len(self._queue), NO_REQUEST, "cleared")

    def _evict(self, count: int, needed_by: int, reason: v.EvictionReason) -> None:
        """Evict blocks from the front of the queue, and emit the events when all of them are free.

        The evicted blocks go to the bottom of the free stack, so they are allocated last, and each
        goes below those evicted before it. They are inserted together, because inserting them one by
        one would move the whole stack each time.
        """
        blocks = [self._queue.popitem(last=False)[0] for _ in range(count)]
        nodes = [self._remove(block) for block in blocks]
        for block in blocks:
            self.pool.refs[block] = 0
        self.pool.free[:0] = reversed(blocks)
        for node, block in zip(nodes, blocks, strict=True):
            self._emit(v.BlockEvicted(node.id, block, needed_by, reason))
            if self.tiers is not None and node.id not in self.nodes:
                self.tiers.evicted(node, [block], reason)

    def _remove(self, block: int) -> HashNode:
        """Remove a block from the hash table, and its node if this was the last copy."""
        node = self._node_of.pop(block)
        if block in node.copies:
            node.copies.remove(block)
        else:
            node.blocks = node.copies[:1]
            del node.copies[:1]
        if not node.blocks:
            assert node.parent is not None
            del self.nodes[node.id]
            del self._by_key[node.parent.id, node.tokens, node.extra_key]
        return node

    # Caching

    def adopt(self, match: HashMatch, tokens: list[int]) -> Adopted:
        """Allocate blocks for tokens that continue a match, and make them findable."""
        node, nodes, size = match.node, list[int](), self.block_size
        blocks = self.pool.allocate(len(tokens) // size)
        for index, block in enumerate(blocks):
            node = self._child(node, tokens[index * size : (index + 1) * size])
            node.blocks.append(block)
            self._node_of[block] = node
            nodes.append(node.id)
        # Queue the prefix as if a request had released it, so that its tail is evicted first.
        while node.parent is not None:
            if self.pool.refs[block := node.blocks[0]] == 1:
                self._queue[block] = None
                self._queue.move_to_end(block)
            node = node.parent
        return Adopted(match.node.id, nodes, blocks)

    def cache_scheduled(self, request: Request, end: int) -> None:
        """Make the full blocks before token `end` findable. Drafts must not be among them."""
        node = parent = self.nodes[request.last_node]
        if end // self.block_size <= node.depth:
            return
        nodes, blocks = list[int](), request.block_table[node.depth : end // self.block_size]
        for block in blocks:
            start = node.depth * self.block_size
            node = self._child(node, request.tokens[start : start + self.block_size])
            (node.copies if node.blocks else node.blocks).append(block)
            self._node_of[block] = node
            nodes.append(node.id)
        self.pool.share(blocks)
        request.last_node = node.id
        self._emit(v.BlocksStored(request.id, parent.id, nodes, blocks))

    def cache_computed(self, request: Request) -> None:
        """Make the blocks that accepted drafts have filled findable, too."""
        self.cache_scheduled(request, request.num_computed_tokens)

    def _child(self, node: HashNode, block_tokens: list[int]) -> HashNode:
        extra_key = () if node.depth else getattr(block_tokens, "extra_key", ())
        key = node.id, tuple(block_tokens), extra_key
        child = self._by_key.get(key)
        if child is None:
            child = HashNode(self._next_id, node, key[1], node.depth + 1, extra_key)
            self._next_id += 1
            self._by_key[key] = self.nodes[child.id] = child
        return child

    def withdraw(self, requests: Sequence[Request], lost: Set[int] = frozenset()) -> None:
        """Remove the blocks that these requests will not compute from the hash table.

        If a request has found such a block of an earlier request, or one of the `lost` blocks, it
        loses that block and all blocks after it.
        """
        uncomputed = set(lost)
        for request in requests:
            uncomputed.update(self._uncomputed_blocks(request))
        for request in reversed(requests):  # a request finds only blocks of earlier requests
            for block in reversed(self._uncomputed_blocks(request)):
                node = self._remove(block)
                assert node.parent is not None
                self.pool.refs[block] -= 1
                request.last_node = node.parent.id
                self._emit(v.BlockWithdrawn(request.id, node.id, block))
            depth = self.nodes[request.last_node].depth
            keep = next((i for i in range(depth) if request.block_table[i] in uncomputed), depth)
            if keep < depth:
                self.free(request, keep)
                request.num_computed_tokens = keep * self.block_size
                self._emit(v.BlocksTrimmed(request.id, keep))

    def _uncomputed_blocks(self, request: Request) -> list[int]:
        computed = request.num_scheduled_tokens // self.block_size
        return request.block_table[computed : self.nodes[request.last_node].depth]

    def check_integrity(self) -> None:
        """Raise AssertionError unless table, nodes, queue and reference counts agree."""
        for block, node in self._node_of.items():
            assert block in node.blocks + node.copies
            assert self.nodes.get(node.id) is node
            assert (self.pool.refs[block] == 1) == (block in self._queue)
        for node in self.nodes.values():
            if node.parent is not None:
                assert self._by_key[node.parent.id, node.tokens, node.extra_key] is node
                assert self.nodes.get(node.parent.id) is node.parent, "a prefix has a gap"
                assert node.depth == node.parent.depth + 1
                assert len(node.blocks) == 1
        assert len(self._by_key) == len(self.nodes) - 1
        assert set(self._queue) <= set(self._node_of)
