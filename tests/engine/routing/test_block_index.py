"""The index finds the same prefixes as a comparison of all tokens would."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cluster.block_index import BlockIndex, block_keys
from tests.engine.witness import common

TOKENS = st.lists(st.sampled_from([1, 2]), max_size=14)


@settings(deadline=None)
@given(
    held=st.dictionaries(
        st.sampled_from("abcd"),
        st.tuples(st.integers(1, 3), st.lists(TOKENS, max_size=3)),
        max_size=4,
    ),
    prompt=st.lists(st.sampled_from([1, 2]), min_size=1, max_size=14),
)
def test_hits_are_the_longest_common_prefixes_in_whole_blocks(
    held: dict[str, tuple[int, list[list[int]]]], prompt: list[int]
) -> None:
    index = BlockIndex()
    expected = {}
    for replica, (size, texts) in held.items():
        index.join(replica, size)
        for text in texts:
            index.add(replica, block_keys(text, size))
        blocks = max((common(prompt, text) // size for text in texts), default=0)
        expected[replica] = min(blocks, (len(prompt) - 1) // size) * size
    found = index.hits(index.keys(prompt), len(prompt))
    assert found == {replica: hit for replica, hit in expected.items() if hit}


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), TOKENS), max_size=8))
def test_discarded_blocks_leave_nothing_behind(added: list[tuple[str, list[int]]]) -> None:
    index = BlockIndex()
    for replica in "abc":
        index.join(replica, 2)
    for replica, tokens in added:
        index.add(replica, block_keys(tokens, 2))
    for replica, tokens in added:
        index.discard(replica, block_keys(tokens, 2))
    assert len(index) == 0
