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
from tests.parity.recorded_steps import read_recording
from tests.sources.kv_feed import Chain
from visualizer import read

FIXTURES = Path(__file__).parents[1] / "fixtures" / "vllm"
COST = Cost(1, 0.1)


def log_of(name: str) -> EventLog:
    return read_recording(FIXTURES / f"{name}.jsonl.gz")


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
    recorded, published = log_of(run), log_of(f"{run}.kv_events")
    ours = changes(published)
    assert len(ours) > 10
    assert changes(recorded) == ours


def test_the_runs_show_something() -> None:
    tight = [kind for kind, _ in changes(log_of("vllm_tight.kv_events"))]
    assert tight.count("evicted") > 20
    copies = log_of("vllm_shared_prefix.kv_events").state().nodes.values()
    assert any(node.copies for node in copies)  # two copies of one block


def blind(log: EventLog) -> EventLog:
    return with_unknown_tokens(log, log[0].source)


@pytest.mark.parametrize("name", ["vllm_calm", "vllm_tight", "vllm_shared_prefix", "async"])
def test_every_recorded_step_is_decided_alike(name: str) -> None:
    log = log_of(name)
    for one in (log, blind(log)):
        found = reproduced(one, what_if(one, cost=COST))
        assert found.first is None
        assert found.equal == found.steps > 80


def test_more_memory_keeps_a_prefix_that_was_evicted() -> None:
    """The salted hashes say so, although the log without tokens does not show them."""
    log = log_of("vllm_shared_prefix")

    def hits(one: EventLog, **changes: int) -> float:
        found = measures(what_if(one, cost=COST, **changes))
        return next(row.value for row in found if "hit rate" in row.name) or 0.0

    more = 16 * log[0].settings["max_kv_tokens"]
    assert hits(log) == hits(blind(log))
    assert hits(log, max_kv_tokens=more) == hits(blind(log), max_kv_tokens=more) > hits(log)


def test_a_study_of_a_recording() -> None:
    log = log_of("vllm_tight")
    answer = study(log, {"max_kv_tokens": [4096]})
    rows = {row.name: row for row in answer.rows}
    assert rows["preemptions"].recorded == rows["preemptions"].replayed == 3
    assert rows["preemptions"].changed == [0]
    assert all(row.error is not None for row in answer.rows if row.name.endswith("ms"))
    assert_names(answer, "229", "max_kv_tokens=4096")


def test_a_capture_of_kv_events_has_no_arrivals() -> None:
    with pytest.raises(ValueError, match="arrivals"):
        what_if(log_of("vllm_calm.kv_events"), cost=COST)


def without_tokens(name: str) -> EventLog:
    """Return a recording as `underglass_vllm` writes it by default."""
    packed = (FIXTURES / f"{name}.jsonl.gz").read_bytes()
    lines = map(json.loads, gzip.decompress(packed).splitlines())
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
    return read_recording("\n".join(kept).encode())


def test_hashes_and_tokens_give_the_same_reasons_for_a_miss() -> None:
    by_tokens, by_hash = log_of("vllm_shared_prefix"), without_tokens("vllm_shared_prefix")
    assert {row.id for row in read(by_hash).token_rows} == {None}
    for request in read(by_tokens).request_rows:
        one, other = (read(log).why_missed(request.label) for log in (by_tokens, by_hash))
        assert (one.length, one.found, one.evicted) == (other.length, other.found, other.evicted)
    gus = read(by_hash).why_missed("Gus")
    assert (gus.kind, gus.found, read(by_hash).request(gus.needed_by).label) == (
        "evicted",
        0,
        "Finn",
    )
