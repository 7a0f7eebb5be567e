"""Runs of the real vLLM: recording and KV events agree, and a replay decides every step alike."""

import gzip
import json
from pathlib import Path

import pytest

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.simulation.cost_runner import Cost
from engine.simulation.measures import measures
from engine.simulation.reproduced import reproduced
from engine.simulation.study import study
from engine.simulation.unknown_tokens import with_unknown_tokens
from engine.simulation.what_if import what_if
from tests.facts import assert_names
from tests.sources.kv_feed import Chain
from visualizer import read
from visualizer.sources import read_source


def log_of(name: str) -> EventLog:
    log = read_source(FIXTURES / name)
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


ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "visualizer" / "scenarios"
FIXTURES = ROOT / "tests" / "fixtures" / "vllm"
RECORDINGS = {
    "calm": SCENARIOS / "vllm_calm.jsonl.gz",
    "tight": SCENARIOS / "vllm_tight.jsonl.gz",
    "shared prefix": SCENARIOS / "vllm_shared_prefix.jsonl.gz",
    "asynchronous": FIXTURES / "async.jsonl.gz",
}
COST = Cost(1, 0.1)


def recording(name: str) -> EventLog:
    log = read_source(RECORDINGS[name])
    assert isinstance(log, EventLog)
    return log


def blind(log: EventLog) -> EventLog:
    return with_unknown_tokens(log, log[0].source)


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_recorded_step_is_decided_alike(name: str) -> None:
    log = recording(name)
    for one in (log, blind(log)):
        found = reproduced(one, what_if(one, cost=COST))
        assert found.first is None
        assert found.equal == found.steps > 80


def test_the_recordings_have_what_a_replay_could_get_wrong() -> None:
    logs = [recording(name) for name in RECORDINGS]
    kinds = {type(event) for log in logs for event in log}
    assert {v.Preempted, v.BlocksStored, v.BlockEvicted} <= kinds
    assert any(event.blocks for log in logs for event in log.of(v.Admitted))
    assert recording("asynchronous")[0].settings["async_scheduling"]


def test_more_memory_keeps_a_prefix_that_was_evicted() -> None:
    """The salted hashes say so, although the log without tokens does not show them."""
    log = recording("shared prefix")

    def hits(one: EventLog, **changes: int) -> float:
        found = measures(what_if(one, cost=COST, **changes))
        return next(row.value for row in found if "hit rate" in row.name) or 0.0

    more = 16 * log[0].settings["max_kv_tokens"]
    assert hits(log) == hits(blind(log))
    assert hits(log, max_kv_tokens=more) == hits(blind(log), max_kv_tokens=more) > hits(log)


def test_a_study_of_a_recording() -> None:
    log = recording("tight")
    answer = study(log, {"max_kv_tokens": [4096]})
    rows = {row.name: row for row in answer.rows}
    assert rows["preemptions"].recorded == rows["preemptions"].replayed == 3
    assert rows["preemptions"].changed == [0]
    assert all(row.error is not None for row in answer.rows if row.name.endswith("ms"))
    assert_names(answer, "227", "max_kv_tokens=4096")


def test_a_capture_of_kv_events_has_no_arrivals() -> None:
    log = read_source(FIXTURES / "vllm_calm.kv_events.jsonl.gz")
    with pytest.raises(ValueError, match="arrivals"):
        what_if(log, cost=COST)  # type: ignore[arg-type]


def without_tokens(name: str) -> EventLog:
    """Return a recording as `underglass_vllm` writes it by default."""
    lines = map(json.loads, gzip.decompress((FIXTURES / name).read_bytes()).splitlines())
    kept = []
    for line in lines:
        if line["type"] == "pieces":
            continue
        if line["type"] == "underglass_vllm":
            line["tokens"] = False
        if line["type"] == "arrived":
            line["prompt"] = len(line["prompt"])
        if line["type"] == "done":
            line["gains"] = [[request, len(ids), *more] for request, ids, *more in line["gains"]]
        kept.append(json.dumps(line))
    log = read_source("\n".join(kept).encode())
    assert isinstance(log, EventLog)
    return log


def test_hashes_and_tokens_give_the_same_reasons_for_a_miss() -> None:
    name = "vllm_shared_prefix.jsonl.gz"
    by_tokens, by_hash = read_source(FIXTURES / name), without_tokens(name)
    assert {row.id for row in read(by_hash).token_rows} == {None}
    for request in read(by_tokens).request_rows:
        one, other = (
            read(by_tokens).why_missed(request.label),
            read(by_hash).why_missed(request.label),
        )
        assert (one.length, one.found, one.evicted) == (other.length, other.found, other.evicted)
    gus = read(by_hash).why_missed("Gus")
    assert (gus.kind, gus.found, read(by_hash).request(gus.needed_by).label) == (
        "evicted",
        32,
        "Dev",
    )
