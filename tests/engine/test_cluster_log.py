"""The cluster log: it splits, loads, keeps a window, and names a damaged line."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine import ClusterLog, Cost, EngineConfig, EventLog, LogError, Workload, simulate_cluster
from engine.cluster import events as c
from engine.core.log import vocabulary as v
from engine.simulation.workload import Arrival
from tests.engine.routing.clusters import Case, cases
from tests.facts import raises_naming
from visualizer import read
from visualizer.reading.rows.decisions import DecisionRow

SMALL = simulate_cluster(
    Workload([Arrival(prompt=[97] * 20, at_ms=10 * at, label="Ada") for at in range(4)]),
    EngineConfig(block_size=4),
    cost=Cost(10, 1),
    lag_ms=5,
)


def lines() -> list[bytes]:
    return SMALL.to_bytes().splitlines()


def loaded(changed: list[bytes]) -> ClusterLog:
    return ClusterLog.from_bytes(b"".join(line + b"\n" for line in changed))


@settings(max_examples=40, deadline=None)
@given(cases())
def test_a_saved_log_comes_back_equal(case: Case) -> None:
    log = case.run()
    again = ClusterLog.from_bytes(log.to_bytes())
    assert list(again) == list(log)
    assert read(again).decision_rows == read(log).decision_rows
    assert list(log.replicas) == [str(number) for number in range(case.replicas)]
    for its in log.replicas.values():
        assert list(EventLog.from_bytes(its.to_bytes())) == list(its)
        assert its.state().seq == its.next_seq - 1


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(2, 200))
def test_a_window_begins_with_what_is_there_and_ends_in_the_same_states(
    case: Case, window: int
) -> None:
    whole, kept = case.run(), ClusterLog(window)
    for event in whole:
        kept.append(event)
    assert len(kept) <= window + 1 + 2 * case.replicas
    assert kept.next_seq == len(whole)
    latest = kept.since(0)
    assert latest == list(whole)[-len(latest) :]
    assume(len(whole) > window)
    started, *head = list(kept)[: -len(latest)]
    assert isinstance(started, c.ClusterStarted)
    present = [event.replica for event in head if isinstance(event, c.ReplicaJoined)]
    framed = [event.replica for event in head if isinstance(event, c.Of)]
    earlier = list(whole)[: -len(latest)]
    begun = set[str]()  # since it joined last
    for event in earlier:
        if isinstance(event, c.Of):
            begun.add(event.replica)
        elif isinstance(event, c.ReplicaLeft):
            begun.discard(event.replica)
    assert framed == [replica for replica in present if replica in begun]
    assert all(isinstance(one.event, v.Keyframe) for one in head if isinstance(one, c.Of))
    again = ClusterLog.from_bytes(kept.to_bytes())
    for replica, log in again.replicas.items():
        assert log.state().core() == whole.replicas[replica].state().core()
        assert log.next_seq == whole.replicas[replica].next_seq
    kept_rows = {(row.request, row.attempt): row for row in read(kept).decision_rows}
    for row in read(whole).decision_rows:
        mine = kept_rows.get((row.request, row.attempt))
        assert mine is None or mine.reason == row.reason


@settings(deadline=None)
@given(at=st.integers(0, len(SMALL) - 1), by=st.sampled_from([b"", b"{", b"7", b'{"type":"x"}']))
def test_a_damaged_line_is_named(at: int, by: bytes) -> None:
    changed = lines()
    changed[at] = by
    with raises_naming(LogError, f"line {at + 1}"):
        loaded(changed)


@settings(deadline=None)
@given(at=st.integers(0, len(SMALL) - 1))
def test_a_missing_event_of_a_replica_is_named(at: int) -> None:
    gone = list(SMALL)[at]
    assume(isinstance(gone, c.Of))
    later = list(SMALL)[at + 1 :]
    behind = [
        number
        for number, event in enumerate(later)
        if isinstance(event, c.Of) and event.replica == gone.replica
    ]
    changed = lines()
    del changed[at]
    if not behind:  # the last one: the log just ends earlier
        assert loaded(changed)
        return
    with raises_naming(LogError, f"line {at + 1 + behind[0]}", f"replica {gone.replica}"):
        loaded(changed)


def test_a_log_without_its_beginning_is_rejected() -> None:
    with raises_naming(LogError, "line 1", "cluster_started"):
        loaded(lines()[1:])
    with raises_naming(LogError, "line 1", "cluster_started"):
        loaded([msgspec.json.encode(v.StepStarted(1))])
    with pytest.raises(LogError):
        ClusterLog.from_bytes(b"")


@pytest.mark.parametrize(
    ("old", "new"), [(b'"schema":1', b'"schema":9'), (b'"schema":2', b'"schema":8')]
)
def test_another_schema_is_named(old: bytes, new: bytes) -> None:
    at = next(number for number, line in enumerate(lines()) if old in line)
    changed = lines()
    changed[at] = changed[at].replace(old, new)
    with raises_naming(LogError, f"line {at + 1}", new.decode()[-1], old.decode()[-1]):
        loaded(changed)


def test_a_gap_that_ends_with_a_keyframe_begins_another_part_of_the_run() -> None:
    whole = SMALL.replicas["0"]
    cut = len(whole) // 2
    keyframe = whole.state(cut).keyframe()
    gap, full = ClusterLog(), ClusterLog()
    for event in SMALL:
        is_its = isinstance(event, c.Of) and event.replica == "0"
        if not is_its or event.seq < 3 or event.seq > cut:
            gap.append(event)
        full.append(event)
        if is_its and event.seq == cut:
            for log in (gap, full):
                log.append(c.Of("0", cut, keyframe))
    [run] = ClusterLog.from_bytes(gap.to_bytes()).runs["0"]
    before_gap, after_gap = run.parts
    assert list(before_gap) == list(whole)[:3]
    assert after_gap[0] == keyframe
    assert after_gap.next_seq == whole.next_seq
    assert after_gap.state().core() == whole.state().core()
    assert list(full.replicas["0"]) == list(whole)


@pytest.mark.parametrize(("name", "runs"), [("a", 1), ("b", 2)])
def test_a_keyframe_of_another_run_is_told_from_a_gap_by_the_run_s_name(
    name: str, runs: int
) -> None:
    log, keyframe = ClusterLog(), replace(SMALL.replicas["0"].state().keyframe(), seq=90_000)
    for event in SMALL:
        log.append(replace(event, run="a") if isinstance(event, c.ReplicaJoined) else event)
    log.append(c.ReplicaJoined("0", run=name, t={"at": 1}))
    log.append(c.Of("0", 90_000, keyframe))
    assert len(log.runs["0"]) == runs
    assert [part.log[-1] for part in log.parts][1] == keyframe


def test_a_row_has_the_prediction_and_what_was_delivered() -> None:
    first, second, *_ = read(SMALL).decision_rows
    assert (first.predicted_tokens, first.cached_tokens) == (0, 0)
    assert second.label == "Ada"
    its = read(SMALL.replicas[second.replica]).request(second.its_request)
    assert second.cached_tokens == its.cached_tokens
    assert second.ttft_ms == its.ttft_ms
    shifted = ClusterLog()
    for event in SMALL:
        if isinstance(event, c.ReplicaJoined):  # its clock is 7 ms behind the cluster's
            event = msgspec.structs.replace(event, t=event.t | {"offset": 7_000})
        shifted.append(event)
    assert [row.ttft_ms for row in read(shifted).decision_rows] == [
        row.ttft_ms + 7 for row in read(SMALL).decision_rows
    ]
    frame = read(SMALL).decisions
    assert list(frame.predicted_tokens) == [
        row.predicted_tokens for row in read(SMALL).decision_rows
    ]


def test_what_a_prefill_replica_answers_alone_is_delivered() -> None:
    joins = [one for one in SMALL if isinstance(one, c.ReplicaJoined)]
    alone = [msgspec.structs.replace(e, role="prefill") if e in joins else e for e in SMALL]
    log = loaded([msgspec.json.encode(event) for event in alone])
    assert read(log).token_rows == read(SMALL).token_rows
    assert read(log).decision_rows == read(SMALL).decision_rows


def test_why_tells_that_a_replica_s_log_does_not_have_the_request() -> None:
    *_, (at, placed) = ((i, e) for i, e in enumerate(SMALL) if isinstance(e, c.Placed))
    cut = loaded(lines()[: at + 1])
    assert "its log does not have the request" in read(cut).why(placed.request)


def test_the_page_about_frames_lists_every_column_in_order() -> None:
    page = (Path(__file__).parents[2] / "docs" / "frames.md").read_text("utf-8")
    section = page.split("## `read(cluster_log).decisions`")[1]
    listed = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
    assert listed == list(read(SMALL).decisions) == list(DecisionRow.__struct_fields__)
