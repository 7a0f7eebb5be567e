"""The fold of KV events: in Python as in the browser, and the cache that it has as our own engine's."""

from pathlib import Path

import msgspec

from engine.core.engine import Engine
from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import BlockEvicted, BlocksReported, EventsMissing, Keyframe
from server.core.event_log import Outbox
from server.core.kv_events import KVEvents
from tests.engine.workloads import make_engine, play, random_workload
from tests.sources.kv_feed import chains, folded, random_capture, translated
from tests.visualizer.test_golden_fold import compare, facts
from visualizer.sources.frames import write_frame
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


SEEDS = range(40)


def prefixes_of(engine: Engine) -> set[tuple[int, ...]]:
    """Every prefix of whole blocks that the engine's cache has, from its own objects."""
    snapshot = engine.snapshot()
    size = engine.config.block_size
    whole: dict[int, list[int]] = {0: []}
    found = set[tuple[int, ...]]()
    left = [node for node in snapshot["nodes"] if node["id"]]
    while left:  # a split gives a node a parent with a larger number
        ready = [node for node in left if node["parent"] in whole]
        for node in ready:
            above = whole[node["parent"]]
            whole[node["id"]] = prefix = above + node["tokens"]
            ends = range(len(above) + size, len(prefix) + 1, size)
            found |= {tuple(prefix[:end]) for end in ends}
        left = [node for node in left if node["id"] not in whole]
    return found


def test_the_reconstructed_cache_is_the_engines() -> None:
    compared = cached = 0
    for seed in SEEDS:
        workload = random_workload(seed, may_be_async=True)
        outbox, published, translator, state = Outbox(), KVEvents(), KVTranslator(), State()
        numbers = iter(range(1_000_000))

        def after_step(engine: Engine) -> None:
            nonlocal compared, cached
            changes = [
                change
                for event in outbox.take()  # noqa: B023
                if (change := published.apply(event)) is not None  # noqa: B023
            ]
            if changes:
                number = next(numbers)  # noqa: B023
                payload = msgspec.msgpack.encode([1e9 + number, changes, 0])
                line = write_frame(b"", number, payload, 1e9)
                for event in translator.feed(line):  # noqa: B023
                    state.apply(event)  # noqa: B023
            wanted = prefixes_of(engine)
            assert chains(state) == wanted, seed  # noqa: B023
            compared += 1
            cached += len(wanted)

        engine = make_engine(workload, outbox)
        play(engine, workload, after_step)
        engine.clear_prefix_cache()
        after_step(engine)
    assert compared > 300
    assert cached > 1000
