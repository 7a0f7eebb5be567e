"""The prefix cache: a radix tree over whole KV blocks.

A path from the root spells a prefix; an edge carries a run of blocks and their tokens. Requests
with the same beginning share a path and its blocks, because the KV of a token depends only on the
tokens up to it.

Four ideas, in the order of this file:

1. match   walk down as long as whole blocks match; this changes nothing.
2. split   cut an edge where a match or an insertion ends inside it.
3. lock    a request locks its path while it lives. A node's `lock_ref` counts the requests that
           lock this node or one below it, so an ancestor is never evicted before its descendants.
4. evict   remove whole unlocked leaves, in a configurable order (`eviction.py`).

Source: RadixAttention (arXiv:2312.07104); SGLang's `python/sglang/srt/mem_cache/radix_cache.py`.

Differs from SGLang, where a match splits edges and refreshes access times. Here only locks count as
accesses, so a policy may look up as many matches as it likes.

Differs from vLLM, which has no tree. It hashes each full block together with its parent's hash
(`vllm/v1/core/kv_cache_utils.py`), and it evicts single blocks, the tail of a prefix first, as
`hash_cache.py` does here.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from engine.core.cache.eviction import LRU, EvictionOrder

ROOT = 0


@dataclass(slots=True, eq=False)
class RadixNode:
    """A node together with the edge above it.

    tokens     ids on the edge, `len(blocks) * block_size` of them
    blocks     the KV blocks of these tokens
    children   keyed by the tokens of the child's first block, and below the root by its `extra_key`
    extra_key  what else the KV below the root depends on, such as an adapter; usually nothing
    lock_ref   the number of owners (requests and holds) that lock this node or one below it
    last       logical time of the latest lock
    uses       how many requests have locked the node, including its first writer; a resumed request
               counts again
    writer     the request that inserted it, and how often that request had been preempted
    """

    copies: ClassVar[tuple[()]] = ()  # a snapshot reads it; empty because duplicates are merged

    id: int
    parent: "RadixNode | None"
    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    children: "dict[tuple[int | str, ...], RadixNode]" = field(default_factory=dict)
    lock_ref: int = 0
    last: int = 0
    uses: int = 0
    writer: tuple[int, int] | None = None
    extra_key: tuple[str, ...] = ()


class Match(NamedTuple):
    """The cached prefix of a token sequence.

    `node` is the deepest node reached, `depth` is the number of matching blocks on its edge (some
    or all of them), and `blocks` has the blocks of the whole path.
    """

    node: RadixNode
    depth: int
    blocks: list[int]


class LockOwner(Protocol):
    """An owner of a lock. `last_node` is the deepest node that it has locked."""

    last_node: int


class RadixTree:
    """A tree of prefixes. It counts locks; the block pool counts references.

    enabled          False if the engine's prefix cache is off, so that nothing is ever inserted
    unlocked_blocks  blocks in unlocked nodes
    """

    def __init__(self, block_size: int, eviction: EvictionOrder | None = None) -> None:
        self.block_size = block_size
        self.eviction = eviction or LRU()
        self.enabled = True
        self.root = RadixNode(ROOT, None)
        self.nodes = {ROOT: self.root}
        self.tick = 0
        self.unlocked_blocks = 0
        self._next_id = 1
        self._leaves: list[tuple[tuple[float, ...], int]] = []  # heap of (eviction key, id)
        self._not_in_heap: dict[int, None] = {}  # nodes whose eviction key is missing in the heap

    # 1. match

    def match(self, tokens: Sequence[int], limit: int, start: RadixNode | None = None) -> Match:
        """Return the longest cached prefix of `tokens` below `start`, at most `limit` blocks.

        Changes neither access times nor edges. Tokens with an `extra_key` match only such tokens.
        """
        size = self.block_size
        node, depth, blocks = start or self.root, 0, list[int]()
        extra_key = () if start and start is not self.root else getattr(tokens, "extra_key", ())
        while len(blocks) < limit:
            at = len(blocks) * size
            child = node.children.get((*extra_key, *tokens[at : at + size]))
            extra_key = ()
            if child is None:
                break
            node, depth = child, 1
            for block in range(1, min(len(child.blocks), limit - len(blocks))):
                edge, text = block * size, at + block * size
                if child.tokens[edge : edge + size] != list(tokens[text : text + size]):
                    break
                depth += 1
            blocks += child.blocks[:depth]
            if depth < len(child.blocks):
                break
        return Match(node, depth, blocks)

    # 2. split, insert, extend

    def split(self, node: RadixNode, at: int) -> RadixNode:
        """Cut an edge after `at` blocks. Return the new upper node; `node` keeps the rest.

        All owners that locked `node` also lock the upper node, so it gets the same lock count, access
        time and uses.
        """
        assert node.parent is not None and 0 < at < len(node.blocks)
        cut = at * self.block_size
        upper = self._new_node(node.parent, node.tokens[:cut], node.blocks[:at], node.extra_key)
        upper.lock_ref, upper.last, upper.uses = node.lock_ref, node.last, node.uses
        node.tokens, node.blocks, node.parent = node.tokens[cut:], node.blocks[at:], upper
        node.extra_key = ()
        upper.children[self._key(node)] = node
        self._not_in_heap[node.id] = None
        return upper

    def insert(self, parent: RadixNode, tokens: list[int], blocks: list[int]) -> RadixNode:
        """Add a leaf below `parent`. It is unlocked; the caller locks it next."""
        extra_key = getattr(tokens, "extra_key", ()) if parent is self.root else ()
        node = self._new_node(parent, tokens, blocks, extra_key)
        self.unlocked_blocks += len(blocks)
        return node

    def extend(self, node: RadixNode, tokens: list[int], blocks: list[int]) -> bool:
        """Append tokens and blocks to the edge of a leaf whose lock has a single owner.

        Returns False, and changes nothing, for any other node.
        """
        if node is self.root or node.children or node.lock_ref != 1:
            return False
        node.tokens += tokens
        node.blocks += blocks
        return True

    def _new_node(
        self, parent: RadixNode, tokens: list[int], blocks: list[int], extra_key: tuple[str, ...]
    ) -> RadixNode:
        node = RadixNode(self._next_id, parent, list(tokens), list(blocks), extra_key=extra_key)
        self._next_id += 1
        self.nodes[node.id] = node
        parent.children[(*extra_key, *node.tokens[: self.block_size])] = node
        return node

    def _key(self, node: RadixNode) -> tuple[int | str, ...]:
        return (*node.extra_key, *node.tokens[: self.block_size])

    # 3. lock

    def move_lock(self, owner: LockOwner, new: RadixNode) -> None:
        """Move an owner's lock to `new`. The root stands for no lock.

        A lock counts as an access, and an unlock does not.
        """
        old, owner.last_node = self.nodes[owner.last_node], new.id
        if old is self.root and new is self.root:
            return
        self.tick += 1
        known = {*self.path(old)}
        for node in self.path(new):
            if node.lock_ref == 0:
                self.unlocked_blocks -= len(node.blocks)
            node.lock_ref += 1
            node.last = self.tick
            node.uses += node not in known
        for node in self.path(old):
            node.lock_ref -= 1
            if node.lock_ref == 0:
                self.unlocked_blocks += len(node.blocks)
                self._not_in_heap[node.id] = None

    def touch(self, node: RadixNode) -> None:
        """Give a node the access time of the next lock move."""
        node.last = self.tick + 1
        self._not_in_heap[node.id] = None

    def path(self, node: RadixNode) -> Iterator[RadixNode]:
        """Yield `node` and its ancestors, without the root."""
        while node.parent is not None:
            yield node
            node = node.parent

    # 4. evict

    def next_victim(self) -> RadixNode | None:
        """Return the leaf to evict next, or None if every leaf is locked.

        The tree does not change, even if the eviction order raises.
        """
        self._push_missing_keys()
        # Compute each key only once: with random keys, this loop might never end otherwise.
        keys: dict[int, tuple[float, ...]] = {}
        while self._leaves:
            key, node_id = self._leaves[0]
            node = self.nodes.get(node_id)
            if node is None or not self._is_evictable(node):
                heapq.heappop(self._leaves)
                continue
            if node_id not in keys:
                keys[node_id] = self.eviction.key(node)
            if keys[node_id] <= key:
                return node
            heapq.heapreplace(self._leaves, (keys[node_id], node_id))
        return None

    def evict(self, node: RadixNode) -> None:
        """Remove an unlocked leaf. Its parent may become a leaf."""
        assert node.parent is not None and self._is_evictable(node)
        del self.nodes[node.id]
        del node.parent.children[self._key(node)]
        self.unlocked_blocks -= len(node.blocks)
        self._not_in_heap[node.parent.id] = None

    def _is_evictable(self, node: RadixNode) -> bool:
        return node is not self.root and not node.lock_ref and not node.children

    def _push_missing_keys(self) -> None:
        """Add missing keys to the heap. Stale entries are dropped when they reach the top."""
        if len(self._leaves) > 2 * len(self.nodes) + 64:  # most are stale, so rebuild it
            self._leaves = []
            self._not_in_heap = dict.fromkeys(self.nodes)
        while self._not_in_heap:
            node_id = next(iter(self._not_in_heap))
            node = self.nodes.get(node_id)
            if node is not None and self._is_evictable(node):
                heapq.heappush(self._leaves, (self.eviction.key(node), node_id))
            del self._not_in_heap[node_id]

    def check_integrity(self) -> None:
        """Raise AssertionError unless links, keys, sizes and the unlocked count agree."""
        for node in self.nodes.values():
            assert len(node.tokens) == len(node.blocks) * self.block_size
            for key, child in node.children.items():
                assert child.parent is node and key == self._key(child)
                assert self.nodes.get(child.id) is child
                if node is not self.root:
                    assert node.lock_ref >= child.lock_ref, "a child has more locks than its parent"
        unlocked = sum(len(node.blocks) for node in self.nodes.values() if not node.lock_ref)
        assert unlocked == self.unlocked_blocks, "unlocked blocks miscounted"
