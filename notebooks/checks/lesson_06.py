"""Lesson 06: split an edge of the radix tree."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import watched
from checks.judging import counted, listed
from engine.core.cache.radix_tree import RadixNode, RadixTree

Split = Callable[[RadixNode, int, int, int], Any]  # (node, at, block size, new id) -> upper

LOWER, UPPER = 7, 9  # ids of the node that is cut and of the new node

ANSWERS = {
    "again": Answer(
        "16 tokens",
        {
            "0 tokens": "All 48 are there, but as keys and values, and Bo needs a next token.",
            "1 token": "The last token must be computed, that's true, but hits are whole blocks.",
            "48 tokens": "Then the cache would help after every prompt but the same one.",
        },
        fits=lambda tokens: tokens == 16,
    ),
}
HINTS = (
    "The upper node takes the tokens up to at * block_size and the first `at` blocks, and the lower "
    "node keeps the rest.",
    "Three links change: the parent's entry for the first block, the new node's parent and its one "
    "child (found by the first block of the rest), and the lower node's parent. The new node also gets "
    "the lower node's lock and its time of last use.",
)


class Promise(Promises):
    """The promises that the check tests."""

    UPPER = "the answer is the new upper node"
    NEW_IS_UPPER = f"the upper node is the new one; node {LOWER} stays below it"
    NEW_ID = "the new node has the new id"
    TOKENS_WITH_BLOCKS = "blocks stay together with their tokens"
    UPPER_EDGE = "the upper node has the beginning of the edge, `at` blocks long"
    UPPER_PARENT = "the new node's parent is the node where the edge began"
    FROM_ABOVE = "the parent's child is now the new node"
    ONE_CHILD = "the new node has one child: the rest of the edge"
    LOWER_ID = f"node {LOWER} keeps its id and stays below"
    CHILD_KEY = "a child is found by the tokens of its first block"
    LOWER_PARENT = "the parent of the lower node is the upper node"
    LOWER_EDGE = "the lower node has the rest of the edge, each block once"
    CHILDREN = "the children of the edge stay below its lower part"
    CHILD_PARENT = "every child knows its parent"
    LISTS = "a node has lists of tokens and blocks, and a dictionary of children"
    SIBLINGS = "the parent's other children stay as they were"
    SAME_PATHS = "every path spells the same tokens as before"
    LOWER_LOCK = "the lower node keeps its lock and its time of last use"
    UPPER_LOCK = "a request that reads the edge reads both parts of it"
    UPPER_LAST = "cutting is not using: both parts were last used when the edge was"


@dataclass(frozen=True)
class Cut:
    """A node to cut, and its surroundings."""

    size: int
    blocks: int
    at: int
    lock: int
    children: int
    below_root: bool
    siblings: int

    @property
    def text(self) -> list[int]:
        """The tokens on the edge, all different."""
        return list(range(10, 10 + self.blocks * self.size))

    @property
    def numbers(self) -> list[int]:
        """The KV blocks on the edge."""
        return list(range(20, 20 + self.blocks))

    def node(self) -> RadixNode:
        """Make a new tree and return the node."""
        parent = RadixNode(0, None)
        if not self.below_root:
            parent = _attach(
                RadixNode(1, parent, [1] * self.size, [1], lock_ref=self.lock), self.size
            )
        for sibling in range(self.siblings):
            token = 500 + sibling
            _attach(RadixNode(50 + sibling, parent, [token] * self.size, [token]), self.size)
        node = RadixNode(LOWER, parent, self.text, self.numbers, lock_ref=self.lock, last=33)
        for child in range(self.children):
            token = 300 + child
            below = RadixNode(30 + child, node, [token] * self.size, [token], last=33 - child)
            _attach(below, self.size)
        return _attach(node, self.size)

    def __str__(self) -> str:
        readers = "No request reads"
        if self.lock:
            readers = f"{counted(self.lock, 'request')} {'reads' if self.lock == 1 else 'read'}"
        children = [f"node {30 + child}" for child in range(self.children)]
        below = f" Below it: {listed(children)}." if children else ""
        return (
            f"Node {LOWER} below {'the root' if self.below_root else 'node 1'}, with the tokens "
            f"{self.text} in the blocks {self.numbers}: {counted(self.size, 'token')} a block. "
            f"{readers} through it.{below} Cut it after {counted(self.at, 'block')}."
        )


class YourSplit(RadixTree):
    """The engine's tree with a learner's `split`."""

    _split: Split | None

    def __init__(self, split: Split, block_size: int) -> None:
        super().__init__(block_size)
        self._split = split

    def split(self, node: RadixNode, at: int) -> RadixNode:
        """Call the learner's function. The lower part may be a new object, too: its id counts."""
        if self._split is None:
            return super().split(node, at)
        upper: RadixNode = self._split(node, at, self.block_size, self._next_id)
        self._next_id += 1
        [lower] = upper.children.values()
        upper.uses = lower.uses = node.uses
        self.nodes |= {upper.id: upper, lower.id: lower}
        self._not_in_heap[lower.id] = None
        return upper


def adapt(split: Split | None) -> Callable[[int], RadixTree]:
    """Return a tree factory: with the learner's `split` if it passed."""
    return partial(YourSplit, split) if split else RadixTree


def cases() -> list[Cut]:
    """Return all small nodes in all surroundings, the smallest first."""
    found = [
        Cut(size, blocks, at, lock, children, below_root, siblings)
        for size, blocks, lock, children, below_root, siblings in product(
            (1, 2, 3), (2, 3, 4), (0, 1, 2), (0, 1, 2), (True, False), (0, 1)
        )
        for at in range(1, blocks)
    ]
    return sorted(found, key=_size)


def _size(cut: Cut) -> tuple[int, ...]:
    parts = (cut.lock, cut.children, not cut.below_root, cut.siblings)
    return (cut.blocks * cut.size, cut.blocks, sum(parts), *parts, cut.at)


def attempt(split: Split, cut: Cut) -> None:
    """Compare the tree after the cut with the one before."""
    node = cut.node()
    parent = node.parent
    assert parent is not None
    root = parent.parent or parent
    before = {below.id: spelled for below, spelled in _paths(root)}
    with watched(split):
        upper = split(node, cut.at, cut.size, UPPER)
    if not isinstance(upper, RadixNode):
        what = "None" if upper is None else f"something of type {type(upper).__name__}"
        raise Promise.UPPER.broken(f"You returned {what}.", "The caller continues from there.")
    if upper.id == LOWER:
        raise Promise.NEW_IS_UPPER.broken(
            f"You returned node {LOWER}, the one that was there before.",
            f"Requests that read node {LOWER} to its end refer to it by that id.",
        )
    if upper.id != UPPER:
        raise Promise.NEW_ID.broken(
            f"The upper node has the id {upper.id}.", f"new_id was {UPPER}."
        )
    _check_the_upper_edge(upper, cut)
    _check_links(upper, parent, cut)
    _check_the_lower_edge(next(iter(upper.children.values())), cut)
    _check_what_is_below(upper, cut)
    _check_paths(before, root, cut)
    _check_protection(upper, cut)


def _check_types(node: RadixNode, name: str) -> None:
    kinds: dict[str, type] = {"tokens": list, "blocks": list, "children": dict}
    for field, kind in kinds.items():
        if not isinstance(value := getattr(node, field), kind):
            raise Promise.LISTS.broken(
                f"The {field} of {name} are of type {type(value).__name__}.",
                f"Before the cut, the {field} of node {LOWER} were of type {kind.__name__}.",
            )


def _check_the_upper_edge(upper: RadixNode, cut: Cut) -> None:
    _check_types(upper, "the upper node")
    have = (
        f"The upper node has {counted(len(upper.blocks), 'block')} and "
        f"{counted(len(upper.tokens), 'token')}: {upper.blocks}, {upper.tokens}."
    )
    if len(upper.tokens) != len(upper.blocks) * cut.size:
        raise Promise.TOKENS_WITH_BLOCKS.broken(
            have, f"How many tokens are in {counted(cut.at, 'block')} of {cut.size}?"
        )
    if upper.blocks != cut.numbers[: cut.at] or upper.tokens != cut.text[: cut.at * cut.size]:
        raise Promise.UPPER_EDGE.broken(
            have, f"{counted(cut.at, 'block')}, from {cut.numbers[0]} on."
        )


def _check_links(upper: RadixNode, parent: RadixNode, cut: Cut) -> None:
    above = "the root" if cut.below_root else "node 1"
    if upper.parent is not parent:
        raise Promise.UPPER_PARENT.broken(
            f"The upper node's parent is {_named(upper.parent)}.", f"Before the cut it was {above}."
        )
    _check_types(parent, above)
    reached = parent.children.get(tuple(cut.text[: cut.size]))
    if reached is not upper:
        raise Promise.FROM_ABOVE.broken(
            f"For the block {cut.text[: cut.size]} the child of {above} is {_named(reached)}.",
            f"{above.capitalize()} now reaches the rest of the edge without its beginning.",
        )
    keys = {(500 + sibling,) * cut.size for sibling in range(cut.siblings)}
    if parent.children.keys() != keys | {tuple(cut.text[: cut.size])}:
        raise Promise.SIBLINGS.broken(
            f"The children of {above} are now found under {listed(map(str, parent.children))}.",
            f"Number of children before the cut: {1 + cut.siblings}. Did the cut add one?",
        )
    if len(upper.children) != 1:
        raise Promise.ONE_CHILD.broken(
            f"The upper node's children: {listed(_named(one) for one in upper.children.values())}.",
            f"Where does a reader of all {cut.blocks} blocks continue?",
        )
    [(key, lower)] = upper.children.items()
    _check_types(lower, _named(lower))
    if lower.id != LOWER:
        raise Promise.LOWER_ID.broken(
            f"The upper node's child is {_named(lower)}.",
            f"Requests that read it to its end refer to it by {LOWER}.",
        )
    rest = cut.text[cut.at * cut.size :]
    if key != tuple(rest[: cut.size]):
        raise Promise.CHILD_KEY.broken(
            f"The upper node finds its child under {key!r}.",
            f"The lower part begins with the block {rest[: cut.size]}.",
        )
    if lower.parent is not upper:
        raise Promise.LOWER_PARENT.broken(
            f"The parent of node {LOWER} is {_named(lower.parent)}.",
            "A lock goes from the last node up to the root. It would miss the new node.",
        )


def _check_the_lower_edge(lower: RadixNode, cut: Cut) -> None:
    blocks, tokens = cut.numbers[cut.at :], cut.text[cut.at * cut.size :]
    if (lower.blocks, lower.tokens) != (blocks, tokens):
        raise Promise.LOWER_EDGE.broken(
            f"Node {LOWER} has the blocks {lower.blocks} and the tokens {lower.tokens}.",
            f"The upper node has {cut.numbers[: cut.at]} already. What is left?",
        )


def _check_what_is_below(upper: RadixNode, cut: Cut) -> None:
    [lower] = upper.children.values()
    expected = {(300 + child,) * cut.size: 30 + child for child in range(cut.children)}
    if {key: child.id for key, child in lower.children.items()} != expected:
        raise Promise.CHILDREN.broken(
            f"The children of node {LOWER}: {listed(_named(one) for one in lower.children.values())}.",
            f"Before the cut: {listed(f'node {one}' for one in expected.values())}.",
        )
    for child in lower.children.values():
        if child.parent is not lower:
            raise Promise.CHILD_PARENT.broken(
                f"The parent of node {child.id} is not the node {LOWER} that is in the tree.",
                f"If you made a new object for node {LOWER}, which nodes still point to the old one?",
            )


def _check_paths(before: dict[int, Any], root: RadixNode, cut: Cut) -> None:
    after = {below.id: spelled for below, spelled in _paths(root)}
    for id_, spelled in before.items():
        if after.get(id_) != spelled:
            raise Promise.SAME_PATHS.broken(
                f"The path from the root to node {id_} has changed.",
                f"Only node {LOWER} had to be cut, after {counted(cut.at, 'block')}.",
            )


def _check_protection(upper: RadixNode, cut: Cut) -> None:
    [lower] = upper.children.values()
    if lower.lock_ref != cut.lock or lower.last != 33:
        raise Promise.LOWER_LOCK.broken(
            f"Node {LOWER} has lock_ref {lower.lock_ref} and was last used at {lower.last}.",
            f"It had lock_ref {cut.lock} and 33. Did a request stop reading it?",
        )
    if upper.lock_ref != cut.lock:
        subject = "One request reads" if cut.lock == 1 else f"{cut.lock} requests read"
        look = f"{subject} through the new node as well. What protects it from eviction?"
        if not cut.lock:
            look = "No request reads through it. What would ever unlock it?"
        raise Promise.UPPER_LOCK.broken(f"The upper node has lock_ref {upper.lock_ref}.", look)
    if upper.last != 33:
        raise Promise.UPPER_LAST.broken(
            f"The upper node was last used at {upper.last}.", f"Node {LOWER} was last used at 33."
        )


def _attach(node: RadixNode, size: int) -> RadixNode:
    assert node.parent is not None
    node.parent.children[tuple(node.tokens[:size])] = node
    return node


def _paths(root: RadixNode) -> Iterator[tuple[RadixNode, tuple[list[int], list[int]]]]:
    """Yield every node with the tokens and blocks from the root to its end."""
    unvisited: list[tuple[RadixNode, list[int], list[int]]] = [(root, [], [])]
    while unvisited:
        node, tokens, blocks = unvisited.pop()
        tokens, blocks = tokens + node.tokens, blocks + node.blocks
        yield node, (tokens, blocks)
        unvisited += [(child, tokens, blocks) for child in node.children.values()]


def _named(node: RadixNode | None) -> str:
    if node is None:
        return "nothing"
    return "the root" if node.id == 0 else f"node {node.id}"
