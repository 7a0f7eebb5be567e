"""Follow vLLM's blocks from operation to operation, and return the events of our hash cache.

vLLM keeps cached and free blocks in one queue: a cached block is evicted when it is allocated again.
In our log, an eviction event precedes the allocation. Requests are identified by their numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.core.log.vocabulary import BlockEvicted, BlocksAllocated, BlocksStored, Event

MOST_EVICTED = 1_000_000  # evicted hashes that keep their numbers


@dataclass
class _Node:
    id: int
    hash: str
    parent: int
    blocks: list[int]
    children: int = 0


@dataclass
class Owner:
    """A request's blocks in order, and in `path` the nodes of the first ones, which are cached."""

    table: list[int] = field(default_factory=list)
    path: list[int] = field(default_factory=list)


class HashMemory:
    """The block tables, and which block is cached at which node of the tree of prefixes.

    `free` counts the blocks that are in no table; as in vLLM, it includes cached ones. Every method
    raises ValueError for an operation that contradicts the earlier ones.
    """

    def __init__(self, num_blocks: int) -> None:
        self.free = num_blocks
        self.owners: dict[int, Owner] = {}
        self.nodes: dict[int, _Node] = {}
        self._refs = [0] * num_blocks
        self._node_of: dict[int, int] = {}
        self._by_hash: dict[str, int] = {}
        # A hash keeps its number after an eviction, so that a block that is cached again gets the same
        # node. A recording may run for weeks, so the oldest evicted hashes lose their numbers.
        self._numbers: dict[str, int] = {}
        self._last = 0

    def attach(self, request: int, cached: list[int]) -> int:
        """Give a request cached blocks. Return the node of the last one, or 0 if there are none."""
        if self.owners[request].table:
            raise ValueError(f"request {request} is admitted, but has blocks already")
        for block in cached:
            if block not in self._node_of:
                raise ValueError(f"block {block} is not cached")
        self._reference(cached)
        owner = self.owners[request] = Owner(cached, [self._node_of[block] for block in cached])
        return owner.path[-1] if cached else 0

    def allocate(self, request: int, blocks: list[int]) -> list[Event]:
        """Give a request new blocks. Those that are cached are evicted first."""
        events: list[Event] = []
        for block in blocks:
            if not 0 <= block < len(self._refs) or self._refs[block]:
                raise ValueError(f"block {block} is allocated, but it is not free")
            if block in self._node_of:
                events.append(self._evict(block, request))
            self._reference([block])
        self.owners[request].table = self.owners[request].table + blocks
        return [*events, BlocksAllocated(request, blocks)] if blocks else events

    def store(self, request: int, first: int, hashes: Sequence[str]) -> Event:
        """Cache the blocks of a request's table from index `first` on."""
        owner = self.owners[request]
        blocks = owner.table[first : first + len(hashes)]
        if first != len(owner.path) or len(blocks) != len(hashes) or not hashes:
            raise ValueError(
                f"request {request} stores {len(hashes)} blocks from index {first} of its table, but "
                f"the table has {len(owner.table)}, of which {len(owner.path)} are stored"
            )
        parent = above = owner.path[-1] if owner.path else 0
        for block, hash_ in zip(blocks, hashes, strict=True):
            above = self.put(block, hash_, above)
            owner.path.append(above)
        return BlocksStored(request, parent, owner.path[first:], blocks)

    def put(self, block: int, hash_: str, parent: int) -> int:
        """Cache a block below a node, as another copy if its hash is cached. Return its node."""
        if not hash_:
            raise ValueError(f"block {block} is stored without a hash")
        if block in self._node_of:
            raise ValueError(f"block {block} is stored with hash {hash_!r}, but is cached already")
        id_ = self._by_hash.get(hash_)
        if id_ is None:
            id_ = self._number(hash_)
            self._by_hash[hash_] = id_
            self.nodes[id_] = _Node(id_, hash_, parent, [])
            if parent:
                self.nodes[parent].children += 1
        elif self.nodes[id_].parent != parent:
            raise ValueError(
                f"block {block} follows a different prefix than the copies of its hash"
            )
        self.nodes[id_].blocks.append(block)
        self._node_of[block] = id_
        return id_

    def _number(self, hash_: str) -> int:
        """Return the number of a hash; a new hash gets the next number."""
        known = self._numbers.get(hash_)
        if known is not None:
            return known
        if len(self._numbers) >= MOST_EVICTED + 2 * len(self.nodes):
            evicted = [one for one in self._numbers if one not in self._by_hash]
            for one in evicted[: len(evicted) // 2]:
                del self._numbers[one]
        self._last += 1
        self._numbers[hash_] = self._last
        return self._last

    def release(self, request: int) -> None:
        """Release all blocks of a request."""
        for block in self.owners[request].table:
            self._refs[block] -= 1
            self.free += not self._refs[block]
        self.owners[request] = Owner()

    def clear(self) -> list[Event]:
        """Empty the cache. No request may use a cached block."""
        blocks = sorted(self._node_of, key=lambda block: -self._node_of[block])  # children first
        return [self._evict(block, -1) for block in blocks]

    def node_at(self, hash_: str) -> int:
        """Return the node of a cached block's hash."""
        if hash_ not in self._by_hash:
            raise ValueError(f"no block with hash {hash_!r} is cached")
        return self._by_hash[hash_]

    def restore(self, owner: Owner) -> Owner:
        """Count the references that the table of a saved request holds. Return `owner`."""
        self._reference(owner.table)
        return owner

    def _reference(self, blocks: list[int]) -> None:
        for block in blocks:
            self.free -= not self._refs[block]
            self._refs[block] += 1

    def _evict(self, block: int, needed_by: int) -> BlockEvicted:
        node = self.nodes[self._node_of.pop(block)]
        if self._refs[block]:
            raise ValueError(f"block {block} is evicted while a request uses it")
        node.blocks.remove(block)
        if not node.blocks:
            if node.children:
                raise ValueError(f"block {block} is evicted before the blocks that follow it")
            del self.nodes[node.id], self._by_hash[node.hash]
            if node.parent:
                self.nodes[node.parent].children -= 1
        return BlockEvicted(node.id, block, needed_by, "room" if needed_by > 0 else "cleared")
