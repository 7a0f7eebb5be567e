"""The prefix cache: a radix tree over whole KV blocks.

A path from the root spells a prefix; an edge carries a run of blocks and their tokens. Two requests
that begin alike walk the same path and read the same blocks, because the KV of a token depends on
everything before it and on nothing after it.

Four ideas, in the order of this file:

1. match   walk down as far as whole blocks agree. Looking changes nothing.
2. split   an edge is cut where a match or an insertion ends inside it.
3. lock    a request locks its path while it lives. A node's lock counts the live requests below it,
           so an ancestor can never be evicted before its descendants.
4. evict   whole leaves nobody has locked, in an order of choice; see `eviction.py`.

Source: RadixAttention (arXiv:2312.07104), as in SGLang's `python/sglang/srt/mem_cache/radix_cache.py`.
There matching itself splits edges and refreshes access times; here a lock is the access, so that a
policy may look up as many matches as it likes. vLLM has no tree: it hashes each full block together
with its parent's hash (`vllm/v1/core/kv_cache_utils.py`).
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.cache.eviction import LRU, EvictionOrder
from engine.part_errors import EvictionError, ask, checked_key

ROOT = 0


@dataclass(slots=True, eq=False)
class RadixNode:
    """An edge and the node at its lower end.

    tokens     ids on the edge, `len(blocks) * block_size` of them
    blocks     the KV blocks that hold them
    children   by the tokens of the child's first block
    lock_ref   live requests locked here or below
    last       logical time of the latest lock
    uses       requests that came to read it, its first writer included; a resumed one counts again
    """

    id: int
    parent: "RadixNode | None"
    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    children: "dict[tuple[int, ...], RadixNode]" = field(default_factory=dict)
    lock_ref: int = 0
    last: int = 0
    uses: int = 0


class Match(NamedTuple):
    """How far a token sequence is cached.

    `node` is the deepest node reached and `depth` the blocks used of its edge, which may be fewer
    than it has; `blocks` is the whole path.
    """

    node: RadixNode
    depth: int
    blocks: list[int]


class RadixTree:
    """Prefixes of whole blocks: nodes and locks, but no memory of its own.

    enabled  False where the engine's prefix cache is off: nothing is ever inserted
    """

    def __init__(self, block_size: int, eviction: EvictionOrder | None = None) -> None:
        self.block_size = block_size
        self.eviction = eviction or LRU()
        self.enabled = True
        self.root = RadixNode(ROOT, None)
        self.nodes = {ROOT: self.root}
        self.tick = 0
        self.unlocked_blocks = 0  # blocks in nodes that nobody has locked
        self._next_id = 1
        self._leaves: list[tuple[tuple[float, ...], int]] = []  # heap of (eviction key, id)
        self._unasked: dict[int, None] = {}  # nodes whose eviction key is to be asked

    # 1. match

    def match(self, tokens: Sequence[int], limit: int, start: RadixNode | None = None) -> Match:
        """Find the longest cached prefix of `tokens`, at most `limit` blocks, below `start`.

        Changes nothing: neither access times nor edges.
        """
        size = self.block_size
        node, depth, blocks = start or self.root, 0, list[int]()
        while len(blocks) < limit:
            at = len(blocks) * size
            child = node.children.get(tuple(tokens[at : at + size]))
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

    def locked_part(self, match: Match) -> int:
        """Blocks of a match that are locked already; evicting cannot free them anyway."""
        node, depth, locked = match.node, match.depth, 0
        while node.parent is not None:
            if node.lock_ref:
                locked += depth
            node = node.parent
            depth = len(node.blocks)
        return locked

    # 2. split, insert, extend

    def split(self, node: RadixNode, at: int) -> RadixNode:
        """Cut `node`'s edge after `at` blocks. Returns the new upper part; `node` keeps the rest.

        The upper part has the same requests below it, so it copies lock, access time and uses.
        """
        assert node.parent is not None and 0 < at < len(node.blocks)
        cut = at * self.block_size
        upper = self._new_node(node.parent, node.tokens[:cut], node.blocks[:at])
        upper.lock_ref, upper.last, upper.uses = node.lock_ref, node.last, node.uses
        node.tokens, node.blocks, node.parent = node.tokens[cut:], node.blocks[at:], upper
        upper.children[self._key(node.tokens)] = node
        self._unasked[node.id] = None
        return upper

    def insert(self, parent: RadixNode, tokens: list[int], blocks: list[int]) -> RadixNode:
        """Add a leaf below `parent`. It is unlocked: whoever inserts locks it next."""
        node = self._new_node(parent, tokens, blocks)
        self.unlocked_blocks += len(blocks)
        return node

    def can_extend(self, node: RadixNode) -> bool:
        """Whether the one request that locked `node` may lengthen its edge in place."""
        return node is not self.root and not node.children and node.lock_ref == 1

    def extend(self, node: RadixNode, tokens: list[int], blocks: list[int]) -> None:
        """Append to the edge of a leaf that its only reader made longer."""
        assert self.can_extend(node)
        node.tokens += tokens
        node.blocks += blocks

    def _new_node(self, parent: RadixNode, tokens: list[int], blocks: list[int]) -> RadixNode:
        node = RadixNode(self._next_id, parent, list(tokens), list(blocks))
        self._next_id += 1
        self.nodes[node.id] = node
        parent.children[self._key(tokens)] = node
        return node

    def _key(self, tokens: list[int]) -> tuple[int, ...]:
        return tuple(tokens[: self.block_size])

    # 3. lock

    def move_lock(self, old: RadixNode, new: RadixNode) -> None:
        """A request's lock moves from `old` to `new`; the root stands for no lock at all."""
        if old is self.root and new is self.root:
            return
        self.tick += 1
        known = {node.id for node in self.path(old)}
        for node in self.path(new):
            if node.lock_ref == 0:
                self.unlocked_blocks -= len(node.blocks)
            node.lock_ref += 1
            node.last = self.tick
            node.uses += node.id not in known
        for node in self.path(old):
            node.lock_ref -= 1
            node.last = self.tick
            if node.lock_ref == 0:
                self.unlocked_blocks += len(node.blocks)
                self._unasked[node.id] = None

    def path(self, node: RadixNode) -> Iterator[RadixNode]:
        """`node` and its ancestors, without the root."""
        while node.parent is not None:
            yield node
            node = node.parent

    # 4. evict

    def next_victim(self) -> RadixNode | None:
        """The leaf to evict next, or None while every leaf is locked.

        Raises EvictionError, and changes nothing, for an eviction order that raises or whose key is
        not a tuple of numbers.
        """
        self._ask_keys()
        keys: dict[int, tuple[float, ...]] = {}  # asked once, or a whim would never end
        while self._leaves:
            key, node_id = self._leaves[0]
            node = self.nodes.get(node_id)
            if node is None or not self._is_evictable(node):
                heapq.heappop(self._leaves)
                continue
            if node_id not in keys:
                keys[node_id] = self._eviction_key(node)
            if keys[node_id] <= key:
                return node
            heapq.heapreplace(self._leaves, (keys[node_id], node_id))
        return None

    def evict(self, node: RadixNode) -> None:
        """Remove an unlocked leaf. Its parent may become the next one."""
        assert node.parent is not None and self._is_evictable(node)
        del self.nodes[node.id]
        del node.parent.children[self._key(node.tokens)]
        self.unlocked_blocks -= len(node.blocks)
        self._unasked[node.parent.id] = None

    def _is_evictable(self, node: RadixNode) -> bool:
        return node is not self.root and not node.lock_ref and not node.children

    def _eviction_key(self, node: RadixNode) -> tuple[float, ...]:
        key = ask(EvictionError, self.eviction.key, node)
        return checked_key(EvictionError, self.eviction, key)

    def _ask_keys(self) -> None:
        """Bring the heap up to date. What is stale in it is found out when it comes to the top."""
        if len(self._leaves) > 2 * len(self.nodes) + 64:  # mostly stale: start over
            self._leaves = []
            self._unasked = dict.fromkeys(self.nodes)
        while self._unasked:
            node_id = next(iter(self._unasked))
            node = self.nodes.get(node_id)
            if node is not None and self._is_evictable(node):
                heapq.heappush(self._leaves, (self._eviction_key(node), node_id))
            del self._unasked[node_id]

    def check_integrity(self) -> None:
        """Raise AssertionError unless links, keys, sizes and the unlocked count agree."""
        for node in self.nodes.values():
            assert len(node.tokens) == len(node.blocks) * self.block_size
            for key, child in node.children.items():
                assert child.parent is node and key == self._key(child.tokens)
                assert self.nodes.get(child.id) is child
                if node is not self.root:
                    assert node.lock_ref >= child.lock_ref, (
                        "a child is locked more often than its parent"
                    )
        unlocked = sum(len(node.blocks) for node in self.nodes.values() if not node.lock_ref)
        assert unlocked == self.unlocked_blocks, "unlocked blocks miscounted"
