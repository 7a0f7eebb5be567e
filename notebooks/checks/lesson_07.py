"""Lesson 07: which leaf of the radix tree is forgotten next?"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from checks.broken import Broken
from checks.guard import call
from checks.judging import counted, judge
from engine.cache.radix_tree import RadixNode, RadixTree

ChooseLeaf = Callable[[list[tuple[int, int, int, int]]], Any]  # (id, children, lock, last)
ROOT = 0


@dataclass(frozen=True)
class Family:
    """A tree: of each node its id, its parent's id, and what a learner is given of it."""

    parents: dict[int, int]
    locks: dict[int, int]
    lasts: dict[int, int]
    order: tuple[int, ...]

    @property
    def rows(self) -> list[tuple[int, int, int, int]]:
        """(id, children, lock, last) of every node, in the order in which they are handed over."""
        return [(id_, self.children(id_), self.locks[id_], self.lasts[id_]) for id_ in self.order]

    def children(self, id_: int) -> int:
        """How many nodes are right below."""
        return sum(parent == id_ for parent in self.parents.values())

    @property
    def answer(self) -> int | None:
        """The least recently used of the leaves that nobody reads; last uses are all different."""
        leaves = [one for one in self.parents if not self.locks[one] and not self.children(one)]
        return min(leaves, key=lambda one: self.lasts[one]) if leaves else None

    def __str__(self) -> str:
        if not self.parents:
            return "A tree with nothing but its root."
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
    """The engine's tree, in which a learner says what is forgotten next."""

    def __init__(self, choose_leaf: ChooseLeaf, block_size: int) -> None:
        super().__init__(block_size)
        self._choose_leaf = choose_leaf

    def next_victim(self) -> RadixNode | None:
        """The learner's choice."""
        rows = [(one.id, len(one.children), one.lock_ref, one.last) for one in self.nodes.values()]
        chosen = self._choose_leaf(rows)
        return None if chosen is None else self.nodes[chosen]


def check(choose_leaf: ChooseLeaf) -> Callable[[int], RadixTree]:
    """Say how it does, and give something that makes trees of a block size: with it, or ours."""
    verdict = judge(choose_leaf, cases(), attempt)
    print(verdict)
    return partial(YourEviction, choose_leaf) if verdict.passed else RadixTree


def cases() -> list[Family]:
    """Trees as an engine leaves them behind, the smallest first, nodes in no particular order."""
    chance = random.Random(7)
    found = [_grown(chance, count) for count in range(7) for _ in range(1 if not count else 80)]
    return sorted(found, key=_size)


def _grown(chance: random.Random, count: int) -> Family:
    """A tree of so many nodes. Whoever reads a node reads all above it, at the same time."""
    parents: dict[int, int] = {}
    for id_ in range(1, count + 1):
        parents[id_] = chance.choice([ROOT, *parents])
    locks, lasts = dict.fromkeys([ROOT, *parents], 0), dict.fromkeys([ROOT, *parents], 0)
    leaves = [id_ for id_ in parents if id_ not in parents.values()]
    chance.shuffle(leaves)
    for time, leaf in enumerate(leaves, 3):  # earlier times are those of readers who have left
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
    """The right leaf, or None where no leaf may go."""
    chosen, right = call(choose_leaf, family.rows), family.answer
    if chosen is None and right is None:
        return
    if chosen is None:
        raise Broken(
            "You returned None: nothing can go.",
            "as long as there is a leaf that nobody reads, one goes",
            f"Is there anything below node {right}, and does anybody read it?",
        )
    if isinstance(chosen, bool) or not isinstance(chosen, int) or chosen not in family.order:
        raise Broken(
            f"You returned {chosen!r}.",
            "the answer is the id of a node, or None",
            "The first number of each node is its id.",
        )
    did = f"You chose node {chosen}."
    if chosen == ROOT:
        raise Broken(
            "You chose node 0, the root.",
            "the root stays",
            "It holds no blocks. It is where every path begins, also that of an empty tree.",
        )
    if family.locks[chosen]:
        readers = family.locks[chosen]
        raise Broken(
            did,
            "what somebody reads stays",
            f"{counted(readers, 'request')} {'is' if readers == 1 else 'are'} reading node {chosen}.",
        )
    if children := family.children(chosen):
        below = "a node below it" if children == 1 else f"{children} nodes below it"
        raise Broken(
            did,
            "only leaves go",
            f"Node {chosen} has {below}. What leads there would lose its beginning.",
        )
    if chosen != right:
        raise Broken(
            did,
            "of the leaves that nobody reads, the least recently used goes first",
            f"Node {chosen} was last used at {family.lasts[chosen]}. Was no such leaf left alone for "
            "longer?",
        )
