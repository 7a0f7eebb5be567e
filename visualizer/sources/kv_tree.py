"""The events that change the prefix cache that KV events describe: a tree of hashes.

The tree is that of the folded state: each hash has a node, and each copy of its block gets the smallest
unused block number. What the state does not have is where each copy is.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from engine.core.log import LogError
from engine.core.log.fold import State
from engine.core.log.state import ROOT, NodeState
from engine.core.log.vocabulary import BlockEvicted, BlocksReported, Event, EvictionReason
from visualizer.sources.hash_numbers import HashNumbers
from visualizer.sources.limits import MAX_BLOCKS

SHOWN_DIGITS = 16


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


class KVTree:
    """Yields the events of each change. The caller folds each of them into `state` at once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._numbers = HashNumbers()
        self._places: dict[int, Place] = {}  # by block
        self._unused: list[int] = []  # a heap of block numbers

    def store(
        self, hashes: list[str], parent: str | None, tokens: list[int], place: Place
    ) -> Iterator[Event]:
        """Add a chain of blocks.

        Without tokens and a parent, the source does not say what the blocks continue. A block then
        stays below the parent that its hash already has, or goes below the root. Raises LogError for a
        chain that continues itself.
        """
        if len(tokens) != self._state.block_size * len(hashes):
            tokens = []
        if parent is None and not tokens:
            for one in hashes:
                yield self._report_alone(one, place)
            return
        above = ROOT if parent is None else self._number(parent, place)
        if parent is not None and above not in self._state.nodes:  # stored before the log begins
            yield BlocksReported(ROOT, [above], [], [], [parent[:SHOWN_DIGITS]], place.words)
        yield self._report(hashes, above, tokens, place)

    def remove(self, hashes: list[str], place: Place) -> Iterator[Event]:
        """Remove a copy of each block. An unknown block was stored before the log begins."""
        for one in hashes:
            if self._copy(one, place) is None:
                yield self._report_alone(one, place)
            block = self._copy(one, place)
            assert block is not None, "it has been reported"
            yield self._evict(block, "room")

    def clear(self, rank: int) -> Iterator[Event]:
        """Remove all blocks of a rank, the last stored first."""
        for node in reversed(list(self._state.nodes.values())):
            for block in reversed(_copies(node)):
                if self._places[block].rank == rank:
                    yield self._evict(block, "cleared")

    def _number(self, hash_: str, place: Place) -> int:
        """Return the node of a hash, whether it is cached or not."""
        return self._numbers.of(f"{place.rank} {hash_}", self._state.nodes)

    def _copy(self, hash_: str, place: Place) -> int | None:
        """Return the oldest copy of a block that a removal from a place removes."""
        node = self._state.nodes.get(self._number(hash_, place))
        blocks = _copies(node) if node else []
        return next((block for block in blocks if place.fits(self._places[block])), None)

    def _report_alone(self, one: str, place: Place) -> BlocksReported:
        """Add a copy of a block without saying what it continues."""
        known = self._state.nodes.get(self._number(one, place))
        return self._report([one], known.parent if known else ROOT, [], place)

    def _report(
        self, chain: list[str], above: int, tokens: list[int], place: Place
    ) -> BlocksReported:
        nodes = [self._number(one, place) for one in chain]
        self._check_chain(chain, nodes, above)
        new = iter(range(len(self._state.refs), MAX_BLOCKS))
        blocks = list[int]()
        for _ in chain:
            block = heapq.heappop(self._unused) if self._unused else next(new, None)
            if block is None:
                raise LogError(f"more than {MAX_BLOCKS:,} blocks are cached")
            self._places[block] = place
            blocks.append(block)
        names = [one[:SHOWN_DIGITS] for one in chain]
        return BlocksReported(above, nodes, blocks, tokens, names, place.words)

    def _check_chain(self, chain: list[str], nodes: list[int], above: int) -> None:
        """Check that no node without copies, which moves below `above`, is above it already."""
        ancestors = set[int]()
        while above != ROOT:
            ancestors.add(above)
            above = self._state.nodes[above].parent
        for hash_, id_ in zip(chain, nodes, strict=True):
            if id_ in ancestors and not self._state.nodes[id_].blocks:
                shown = hash_[:SHOWN_DIGITS]
                raise LogError(f"the chain of block {shown} continues itself")

    def _evict(self, block: int, reason: EvictionReason) -> BlockEvicted:
        del self._places[block]
        heapq.heappush(self._unused, block)
        return BlockEvicted(self._state.node_of[block], block, -1, reason)


def _copies(node: NodeState) -> list[int]:
    """Return the blocks of a node, the oldest first."""
    return [*node.blocks, *node.copies]
