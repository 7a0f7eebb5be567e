"""The fold of KV events: in Python as in the browser, and the cache that it has as our own engine's."""

from itertools import count
from pathlib import Path

from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import (
    BlockEvicted,
    BlocksReported,
    EventsMissing,
    Keyframe,
    StepStarted,
)
from server.core.kv_events import KVEvents
from tests.engine.workloads import make_engine, play, random_workload, windowed
from tests.server.test_kv_events import cached_prefixes
from tests.sources.kv_feed import chains, folded, line, random_capture, translated
from tests.visualizer.test_golden_fold import compare, facts
from visualizer.sources.kv_events import KVTranslator


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
        log = windowed(translated(random_capture(seed)), 30 + seed)
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


SEEDS = range(40)


def test_the_reconstructed_cache_is_the_engines() -> None:
    compared = cached = 0
    for seed in SEEDS:
        workload = random_workload(seed, may_be_async=True)
        engine = make_engine(workload)
        play(engine, workload)
        engine.clear_prefix_cache()
        published, translator, own, theirs = KVEvents(), KVTranslator(), State(), State()
        numbers = count()
        for event in engine.log:
            if isinstance(event, StepStarted):
                wanted = cached_prefixes(own)
                assert chains(theirs) == wanted, seed
                compared, cached = compared + 1, cached + len(wanted)
            own.apply(event)
            if (change := published.apply(event)) is not None:
                for told in translator.feed(line(next(numbers), [change])):
                    theirs.apply(told)
        assert not chains(theirs)
    assert compared > 300
    assert cached > 1000
