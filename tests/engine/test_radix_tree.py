"""The radix tree against the simplest cache: a set of whole prefixes."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.core.cache.eviction import LFU, LRU, EvictionOrder
from engine.core.cache.radix_tree import RadixNode, RadixTree

SIZE = 2
texts = st.lists(st.integers(0, 2), min_size=SIZE, max_size=14).map(
    lambda tokens: tokens[: len(tokens) // SIZE * SIZE]
)


class LargestFirst(EvictionOrder):
    """A key that also changes when an edge is split."""

    def key(self, node: RadixNode) -> tuple[float, ...]:
        return (-len(node.blocks), node.last)


class TreeAgainstPrefixes(RuleBasedStateMachine):
    """Readers insert, lock, release; leaves are evicted. Model: {prefix: block}, {prefix: uses}."""

    order: type[EvictionOrder] = LRU

    def __init__(self) -> None:
        super().__init__()
        self.tree = RadixTree(SIZE, self.order())
        self.uses: dict[tuple[int, ...], int] = {}
        self.block_of: dict[tuple[int, ...], int] = {}
        self.readers: list[RadixNode] = []
        self.next_block = 0

    @rule(tokens=texts)
    def read(self, tokens: list[int]) -> None:
        """Do what the cache does for a request: match, split, insert the rest, lock."""
        match = self.tree.match(tokens, len(tokens) // SIZE)
        node = match.node
        if match.depth < len(node.blocks):
            node = self.tree.split(node, match.depth)
        rest = tokens[len(match.blocks) * SIZE :]
        if rest:
            blocks = []
            for end in range(len(tokens) - len(rest) + SIZE, len(tokens) + 1, SIZE):
                blocks.append(self.next_block)
                self.block_of[tuple(tokens[:end])] = self.next_block
                self.next_block += 1
            node = self.tree.insert(node, rest, blocks)
        self.tree.move_lock(self.tree.root, node)
        self.readers.append(node)
        for end in range(SIZE, len(tokens) + 1, SIZE):
            self.uses[tuple(tokens[:end])] = self.uses.get(tuple(tokens[:end]), 0) + 1

    @precondition(lambda self: self.readers)
    @rule(index=st.integers(0, 100))
    def leave(self, index: int) -> None:
        node = self.readers.pop(index % len(self.readers))
        self.tree.move_lock(node, self.tree.root)

    @rule()
    def evict(self) -> None:
        leaves = [
            node
            for node in self.tree.nodes.values()
            if node is not self.tree.root and not node.lock_ref and not node.children
        ]
        victim = self.tree.next_victim()
        if not leaves:
            assert victim is None
            return
        assert victim is min(leaves, key=self.order().key)
        gone = set(victim.blocks)
        self.tree.evict(victim)
        self.uses = {p: n for p, n in self.uses.items() if self.block_of[p] not in gone}
        self.block_of = {p: block for p, block in self.block_of.items() if block not in gone}

    @precondition(lambda self: self.block_of)
    @rule(index=st.integers(0, 100))
    def cut(self, index: int) -> None:
        """Match as an admission that then fails for lack of blocks: an edge is split and not locked."""
        prefix = sorted(self.block_of)[index % len(self.block_of)]
        match = self.tree.match(prefix, len(prefix) // SIZE)
        if match.depth < len(match.node.blocks):
            self.tree.split(match.node, match.depth)

    @invariant()
    def agrees(self) -> None:
        self.tree.check_integrity()
        for prefix, block in self.block_of.items():
            found = self.tree.match(prefix, len(prefix) // SIZE).blocks
            assert len(found) == len(prefix) // SIZE
            assert found[-1] == block
        blocks = [block for node in self.tree.nodes.values() for block in node.blocks]
        assert sorted(blocks) == sorted(self.block_of.values())
        for node in self.tree.nodes.values():
            spelled = [token for one in self.tree.path(node) for token in reversed(one.tokens)]
            assert node.uses == self.uses.get(tuple(reversed(spelled)), 0)
        locks = {node.id: node.lock_ref for node in self.tree.nodes.values()}
        counted = dict.fromkeys(locks, 0)
        for reader in self.readers:
            for node in self.tree.path(reader):
                counted[node.id] += 1
        assert counted == locks


class TreeUnderLFU(TreeAgainstPrefixes):
    order = LFU


class TreeUnderLargestFirst(TreeAgainstPrefixes):
    order = LargestFirst


for machine in (TreeAgainstPrefixes, TreeUnderLFU, TreeUnderLargestFirst):
    machine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestTreeAgainstPrefixes = TreeAgainstPrefixes.TestCase
TestTreeUnderLFU = TreeUnderLFU.TestCase
TestTreeUnderLargestFirst = TreeUnderLargestFirst.TestCase


@settings(max_examples=100, deadline=None)
@given(known=st.lists(texts, max_size=6), asked=texts, limit=st.integers(0, 7))
def test_a_match_is_the_longest_common_run_of_whole_blocks(
    known: list[list[int]], asked: list[int], limit: int
) -> None:
    machine = TreeAgainstPrefixes()
    for tokens in known:
        machine.read(tokens)
    found = machine.tree.match(asked, min(limit, len(asked) // SIZE))
    longest = 0
    while (
        longest < min(limit, len(asked) // SIZE)
        and tuple(asked[: (longest + 1) * SIZE]) in machine.block_of
    ):
        longest += 1
    assert len(found.blocks) == longest
