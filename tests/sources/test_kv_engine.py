"""What a subscriber's log says is cached equals what our own engine holds, after every step."""

import msgspec

from engine.engine import Engine
from engine.events.fold import State
from server.core.event_log import Outbox
from server.core.kv_events import KVEvents
from tests.engine.workloads import make_engine, play, random_workload
from tests.sources.kv_feed import chains
from visualizer.sources.frames import write_frame
from visualizer.sources.kv_events import KVTranslator

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
