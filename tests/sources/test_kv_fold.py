"""The fold of KV events: the same in Python and in the browser, also from a keyframe on."""

from pathlib import Path

from engine.events.log import EventLog
from engine.events.vocabulary import BlockEvicted, BlocksReported, EventsMissing, Keyframe
from tests.sources.kv_feed import folded, random_capture, translated
from tests.visualizer.test_golden_fold import compare, facts


def test_both_folds_agree_after_every_event(tmp_path: Path) -> None:
    logs = {str(seed): EventLog.from_events(translated(random_capture(seed))) for seed in range(16)}
    compare(logs, tmp_path)
    events = [event for log in logs.values() for event in log]
    kinds = {type(event) for event in events}
    assert kinds >= {BlocksReported, BlockEvicted, EventsMissing}
    assert any(isinstance(one, BlocksReported) and not one.blocks for one in events)


def test_both_folds_agree_from_a_keyframe_on(tmp_path: Path) -> None:
    logs = {}
    for seed in range(8):
        log = EventLog(window=30 + seed)
        for event in translated(random_capture(seed)):
            log.append(event)
        assert isinstance(log[0], Keyframe)
        logs[str(seed)] = log
    compare(logs, tmp_path)


def test_the_state_is_as_large_as_the_cache() -> None:
    """Numbers of blocks are used again: there are as many as were ever cached at once."""
    for seed in range(10):
        live, most = 0, 0
        events = translated(random_capture(seed, messages=200))
        for event in events:
            live += len(event.blocks) if isinstance(event, BlocksReported) else 0
            live -= isinstance(event, BlockEvicted)
            most = max(most, live)
        state = folded(events)
        assert len(state.refs) == state.settings["num_blocks"] == most
        held = [len(node.blocks) + len(node.copies) for node in state.nodes.values()]
        assert sum(state.refs) == live == sum(held)


def test_a_keyframe_holds_the_whole_state() -> None:
    for seed in range(10):
        events = translated(random_capture(seed))
        middle = len(events) // 2
        state = folded(events[:middle])
        joined = folded([state.keyframe(), *events[middle:]])
        assert facts(joined) == facts(folded(events))
