"""One run of the real vLLM as a recording and as KV events: both logs have the same cache."""

from pathlib import Path

import pytest

from engine.events import EventLog
from engine.events import vocabulary as v
from engine.events.fold import State
from tests.sources.kv_feed import Chain
from visualizer.sources import read_source

RUNS = Path("tests/fixtures/vllm")


def log_of(name: str) -> EventLog:
    log = read_source(RUNS / name)
    assert isinstance(log, EventLog)
    return log


def changes(log: EventLog) -> list[tuple[str, Chain]]:
    """Return each block that was stored or evicted, in order, as the tokens up to its end."""
    state, found = State(), list[tuple[str, Chain]]()
    for event in log:
        if isinstance(event, v.BlockEvicted):
            found.append(("evicted", tuple(state.prefix_tokens(event.node))))
        state.apply(event)
        if isinstance(event, v.BlocksStored | v.BlocksReported):
            found += [("stored", tuple(state.prefix_tokens(node))) for node in event.nodes]
    return found


@pytest.mark.parametrize("run", ["vllm_calm", "vllm_shared_prefix", "vllm_tight"])
def test_both_logs_say_the_same_of_the_cache(run: str) -> None:
    recorded, published = log_of(f"{run}.jsonl.gz"), log_of(f"{run}.kv_events.jsonl.gz")
    ours = changes(published)
    assert len(ours) > 10
    assert changes(recorded) == ours


def test_the_runs_show_something() -> None:
    tight = [kind for kind, _ in changes(log_of("vllm_tight.kv_events.jsonl.gz"))]
    assert tight.count("evicted") > 20
    copies = log_of("vllm_shared_prefix.kv_events.jsonl.gz").state().nodes.values()
    assert any(node.copies for node in copies)  # two copies of one block
