"""Lesson 08: which leaf of the radix tree is evicted next?"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.decided import decided
from checks.guard import call
from checks.judging import counted, whole
from engine.core.cache.radix_tree import RadixNode, RadixTree
from engine.simulation.choice import Evict

ANSWERS = {
    "first": decided(
        "eviction", 13, {"the letter": Evict(1), "the clock": Evict(2), "the garden": Evict(3)}
    ),
    "parts": Answer(
        "middle and end",
        {
            "beginning and middle": "They are the oldest, but can an end be found without them?",
            "all of it": "The tree evicts whole leaves, but here two blocks are enough.",
        },
    ),
}
HINTS = (
    "Filter first, so that only nodes remain that may be evicted: there are three conditions, and all "
    "of them are in the row.",
    "The root has the id 0, a leaf has no children, and an unlocked node has lock_ref 0. Then min() "
    "with key=... picks the least recently used, and default=None covers the empty list.",
)


class Promise(Promises):
    """The promises that the check tests."""

    CHOOSES_ONE = "as long as there is an unlocked leaf, one is evicted"
    UNLOCKED_LEAF = "the answer is the id of an unlocked leaf, or None if there is none"
    IS_ID = "the answer is the id of a node, or None"
    ROOT_STAYS = "the root is never evicted"
    LOCKED_STAYS = "a locked node is never evicted"
    ONLY_LEAVES = "only leaves are evicted"
    LRU = "of the unlocked leaves the least recently used is evicted first"


ChooseLeaf = Callable[[list[tuple[int, int, int, int]]], Any]  # (id, children, lock_ref, last)
ROOT = 0


@dataclass(frozen=True)
class Family:
    """A tree: each node's id, its parent's id, and the values that the learner gets."""

    parents: dict[int, int]
    locks: dict[int, int]
    lasts: dict[int, int]
    order: tuple[int, ...]

    @property
    def rows(self) -> list[tuple[int, int, int, int]]:
        """Return (id, children, lock_ref, last) of every node, in the learner's order."""
        return [(id_, self.children(id_), self.locks[id_], self.lasts[id_]) for id_ in self.order]

    def children(self, id_: int) -> int:
        """Return the number of children."""
        return sum(parent == id_ for parent in self.parents.values())

    @property
    def answer(self) -> int | None:
        """The least recently used unlocked leaf; times of unlocked leaves differ."""
        leaves = [one for one in self.parents if not self.locks[one] and not self.children(one)]
        return min(leaves, key=lambda one: self.lasts[one]) if leaves else None

    def __str__(self) -> str:
        if not self.parents:
            return "A tree that has only its root."
        nodes = []
        for id_ in self.order:
            if id_ == ROOT:
                continue
            above = "the root" if self.parents[id_] == ROOT else f"node {self.parents[id_]}"
            lock = self.locks[id_]
            read = f", read by {counted(lock, 'request')}" if lock else ""
            nodes.append(f"node {id_} below {above}, last used at {self.lasts[id_]}{read}")
        return f"A tree, in the order in which you get it: {'; '.join(nodes)}."


class YourEviction(RadixTree):
    """The engine's tree with a learner's choice of victims."""

    _choose_leaf: ChooseLeaf | None

    def __init__(self, choose_leaf: ChooseLeaf, block_size: int) -> None:
        super().__init__(block_size)
        self._choose_leaf = choose_leaf

    def next_victim(self) -> RadixNode | None:
        """Return the learner's choice. Raises Broken if it may not be evicted."""
        if self._choose_leaf is None:
            return super().next_victim()
        rows = [(one.id, len(one.children), one.lock_ref, one.last) for one in self.nodes.values()]
        chosen = self._choose_leaf(rows)
        unlocked = [one.id for one in self.nodes.values() if self._is_evictable(one)]
        if chosen is None and not unlocked:
            return None
        if isinstance(chosen, bool) or chosen not in unlocked:
            raise Promise.UNLOCKED_LEAF.broken(
                f"choose_leaf() returned {chosen!r}.", f"The unlocked leaves are {unlocked}."
            )
        return self.nodes[int(chosen)]


def adapt(choose_leaf: ChooseLeaf | None) -> Callable[[int], RadixTree]:
    """Return a tree factory: with the learner's choice if it passed."""
    return partial(YourEviction, choose_leaf) if choose_leaf else RadixTree


def cases() -> list[Family]:
    """Return trees as an engine builds them, the smallest first, nodes in random order."""
    chance = random.Random(7)
    found = [_grown(chance, count) for count in range(7) for _ in range(1 if not count else 80)]
    return sorted(found, key=_size)


def _grown(chance: random.Random, count: int) -> Family:
    """Return a tree of `count` nodes. A reader of a node reads all nodes above it at the same time."""
    parents: dict[int, int] = {}
    for id_ in range(1, count + 1):
        parents[id_] = chance.choice([ROOT, *parents])
    locks, lasts = dict.fromkeys([ROOT, *parents], 0), dict.fromkeys([ROOT, *parents], 0)
    leaves = [id_ for id_ in parents if id_ not in parents.values()]
    chance.shuffle(leaves)
    for time, leaf in enumerate(leaves, 3):  # earlier times belong to readers that have finished
        reads = chance.random() < 0.3
        for id_ in _path(leaf, parents):
            locks[id_] += reads
            lasts[id_] = time
    order = [ROOT, *parents]
    chance.shuffle(order)
    return Family(parents, locks, lasts, tuple(order))


def _path(id_: int, parents: dict[int, int]) -> list[int]:
    return [] if id_ == ROOT else [id_, *_path(parents[id_], parents)]


def _size(family: Family) -> tuple[int, int]:
    return (len(family.parents), sum(family.locks.values()))


def attempt(choose_leaf: ChooseLeaf, family: Family) -> None:
    """Check for the right leaf, or None if no leaf can be evicted."""
    chosen, right = call(choose_leaf, family.rows), family.answer
    if chosen is None and right is None:
        return
    if chosen is None:
        raise Promise.CHOOSES_ONE.broken(
            "You returned None: nothing can be evicted.",
            f"Does node {right} have children, or a lock?",
        )
    if whole(chosen) not in family.order:
        raise Promise.IS_ID.broken(
            f"You returned {chosen!r}.", "The first number of each node is its id."
        )
    did = f"You chose node {chosen}."
    if chosen == ROOT:
        raise Promise.ROOT_STAYS.broken(
            "You chose node 0, the root.",
            "It holds no blocks. Every path begins there, even in an empty tree.",
        )
    if family.locks[chosen]:
        readers = family.locks[chosen]
        raise Promise.LOCKED_STAYS.broken(
            did,
            f"{counted(readers, 'request')} {'is' if readers == 1 else 'are'} reading node {chosen}.",
        )
    if children := family.children(chosen):
        below = "a node below it" if children == 1 else f"{children} nodes below it"
        raise Promise.ONLY_LEAVES.broken(
            did, f"Node {chosen} has {below}. A path to it would lose its beginning."
        )
    if chosen != right:
        raise Promise.LRU.broken(
            did,
            f"Node {chosen} was last used at {family.lasts[chosen]}. Which unlocked leaf was used "
            "before that?",
        )
