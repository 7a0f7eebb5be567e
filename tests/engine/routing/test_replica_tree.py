"""The keys of a replica's tree follow its log: after each event they equal those of the folded tree."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cluster.block_index import BlockIndex, block_keys
from engine.cluster.replica_tree import ReplicaTree
from engine.core.log import vocabulary as v
from engine.core.log.state import ROOT, EngineState
from tests.engine.workloads import make_engine, play, random_workload
from tests.facts import raises_naming


def cached_keys(state: EngineState) -> set[int]:
    return {
        key
        for node in state.nodes
        if node != ROOT
        for key in block_keys(state.prefix_tokens(node), state.block_size)
    }


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), joined_late=st.floats(0, 1))
def test_keys_equal_the_folded_tree_after_every_event(seed: int, joined_late: float) -> None:
    workload = random_workload(seed, may_be_async=True, may_be_begun=True)
    engine = make_engine(workload)
    play(engine, workload)
    events = list(engine.log)
    cut = int(joined_late * (len(events) - 1))
    if cut:
        events = [engine.log.state(cut).keyframe(), *events[cut + 1 :]]
    index = BlockIndex()
    index.join("0", engine.config.block_size)
    tree, known = ReplicaTree("0", index), set[int]()
    for event in events:
        known |= set(tree.apply(event))
        assert tree.state is not None
        expected = cached_keys(tree.state)
        assert expected <= known, "a new block was not reported"
        assert len(index) == len(expected)
        assert all(index.has("0", key) for key in expected)
    tree.clear()
    assert len(index) == 0


def test_events_before_the_first_state_are_rejected() -> None:
    index = BlockIndex()
    index.join("7", 4)
    with raises_naming(ValueError, "7", "run_started", "keyframe", "step_started"):
        ReplicaTree("7", index).apply(v.StepStarted(1))
