"""The prefix cache that KV events describe: a tree of hashes, with the events that change it.

Each hash gets a node, and each copy of its block gets the smallest unused block number. The tree is as
large as the cache that it mirrors.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.core.log import LogError
from engine.core.log.vocabulary import BlockEvicted, BlocksReported, Event, EvictionReason
from visualizer.sources.limits import MAX_BLOCKS

ROOT = 0
SHOWN_DIGITS = 16
Key = tuple[int, str]  # rank, hash


@dataclass(frozen=True)
class Place:
    """Where a copy of a block is.

    medium  the tier, such as "CPU"; None if the event does not name it
    group   the group of layers; None if the event does not name it
    words   the place in words: "CPU, rank 1"
    """

    rank: int
    medium: str | None
    group: int | None
    words: str

    def fits(self, other: "Place") -> bool:
        """Return whether a removal from this place removes a copy in `other`."""
        return self.medium in (None, other.medium) and self.group in (None, other.group)


@dataclass(slots=True)
class _Node:
    """A hash that is cached or has a cached descendant. `above` is None directly below the root."""

    id: int
    key: Key
    above: "_Node | None"
    below: int = 0
    copies: list[tuple[Place, int]] = field(default_factory=list)  # each with its block number


class KVTree:
    """Mirrors the cache. Each public method changes the tree and yields the events of the change."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._nodes: dict[Key, _Node] = {}
        self._next = ROOT + 1
        self._unused: list[int] = []  # a heap of block numbers
        self._numbers = 0

    def store(
        self, hashes: list[str], parent: str | None, tokens: list[int], place: Place
    ) -> Iterator[Event]:
        """Add a chain of blocks.

        Without tokens and a parent, the source does not say what the blocks continue. A block then
        stays below the parent that its hash already has, or goes below the root. Raises LogError for a
        chain that continues itself.
        """
        if len(tokens) != self._size * len(hashes):
            tokens = []
        if parent is None and not tokens:
            for one in hashes:
                yield self._report_alone(one, place)
            return
        above = None
        if parent is not None:
            key = (place.rank, parent)
            above = self._nodes.get(key)
            if above is None:  # it was stored before the log begins
                above = self._add(key, None)
                yield BlocksReported(ROOT, [above.id], [], [], [_shown(key)], place.words)
        yield self._report(hashes, above, tokens, place)

    def remove(self, hashes: list[str], place: Place) -> Iterator[Event]:
        """Remove a copy of each block. An unknown block was stored before the log begins."""
        for one in hashes:
            node = self._nodes.get((place.rank, one))
            if node is None or not any(place.fits(there) for there, _ in node.copies):
                yield self._report_alone(one, place)
                node = self._nodes[place.rank, one]
            at = next(i for i, (there, _) in enumerate(node.copies) if place.fits(there))
            yield self._evict(node, at, "room")

    def clear(self, rank: int) -> Iterator[Event]:
        """Remove all blocks of a rank, the last stored first."""
        for node in reversed([one for key, one in self._nodes.items() if key[0] == rank]):
            while node.copies:
                yield self._evict(node, len(node.copies) - 1, "cleared")

    def _report_alone(self, one: str, place: Place) -> BlocksReported:
        """Add a copy of a block without saying what it continues."""
        known = self._nodes.get((place.rank, one))
        return self._report([one], known.above if known else None, [], place)

    def _report(
        self, chain: list[str], above: _Node | None, tokens: list[int], place: Place
    ) -> BlocksReported:
        nodes, blocks, first = list[int](), list[int](), above.id if above else ROOT
        for one in chain:
            node = self._nodes.get((place.rank, one))
            if node is None:
                node = self._add((place.rank, one), above)
            elif not node.copies and node.above is not above:
                self._move(node, above)
            number = heapq.heappop(self._unused) if self._unused else self._numbers
            if number == self._numbers:
                self._numbers += 1
            if self._numbers > MAX_BLOCKS:
                raise LogError(f"more than {MAX_BLOCKS:,} blocks are cached")
            node.copies.append((place, number))
            nodes.append(node.id)
            blocks.append(number)
            above = node
        names = [one[:SHOWN_DIGITS] for one in chain]
        return BlocksReported(first, nodes, blocks, tokens, names, place.words)

    def _add(self, key: Key, above: _Node | None) -> _Node:
        node = self._nodes[key] = _Node(self._next, key, above)
        self._next += 1
        if above:
            above.below += 1
        return node

    def _move(self, node: _Node, above: _Node | None) -> None:
        """Move a node without copies below its parent, as soon as the parent is known."""
        ancestor = above
        while ancestor:
            if ancestor is node:
                raise LogError(f"the chain of block {_shown(node.key)} continues itself")
            ancestor = ancestor.above
        if node.above:
            node.above.below -= 1
        if above:
            above.below += 1
        node.above = above

    def _evict(self, node: _Node, at: int, reason: EvictionReason) -> BlockEvicted:
        _, number = node.copies.pop(at)
        heapq.heappush(self._unused, number)
        gone: _Node | None = node
        while gone and not gone.copies and not gone.below:
            del self._nodes[gone.key]
            gone = gone.above
            if gone:
                gone.below -= 1
        return BlockEvicted(node.id, number, -1, reason)


def _shown(key: Key) -> str:
    return key[1][:SHOWN_DIGITS]
