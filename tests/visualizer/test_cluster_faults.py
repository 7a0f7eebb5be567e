"""Logs of real faults: each number and each answer is true of all runs of the replicas."""

import pytest

from engine import ClusterLog
from engine.cluster import events as c
from engine.cluster.cluster_log import RunCounter
from engine.cluster.cluster_part import ClusterPart
from engine.cluster.recorded_faults import Fault, recorded_faults
from engine.cluster.simulate_cluster import simulate_cluster
from engine.core.log import vocabulary as v
from tests.facts import assert_names
from tests.visualizer.clusters import COST, config, faults, speakers, three_replicas
from visualizer import read
from visualizer.comparing.cluster_study import LAG_MS, ClusterChange, ClusterReplay, study_cluster
from visualizer.indexed.part import replayed_cluster
from visualizer.reading.summary import summary


@pytest.fixture(scope="module", params=["restart", "kill", "stop", "drain"])
def log(request) -> ClusterLog:
    return faults()[request.param]


def test_no_event_of_a_replica_is_left_out(log):
    counter, kept = RunCounter(), sum(len(part.log) for part in log.parts)
    new = [event for event in log if counter.take(event) != "known" and isinstance(event, c.Of)]
    assert kept == len(new)
    for part in log.parts:
        assert part.log.state().seq == part.log.next_seq - 1


def test_the_summary_counts_all_runs(log):
    rows = [row for row in read(log).decision_rows if row.cached_tokens is not None]
    admitted = sum(not one.resumed for part in log.parts for one in part.log.of(v.Admitted))
    assert len(rows) <= admitted  # a replica that was given up may still admit a request
    rows = [row for row in rows if row.prompt_tokens]
    found = sum(row.cached_tokens for row in rows)
    asked = sum(row.prompt_tokens + row.output_tokens for row in rows)
    assert_names(summary(log).partition("\n\n")[0], f"{found:,} of {asked:,}")


def test_a_token_is_delivered_once_also_if_its_request_goes_on_elsewhere(log):
    delivered: dict[int, int] = {}
    for row in read(log).token_rows:
        delivered[row.request] = delivered.get(row.request, 0) + 1
        assert row.gap_ms is None or row.gap_ms >= 0
    parts = {(one.run.replica, one.run.number): one.log for one in log.parts}
    for row in read(log).decision_rows:
        if row.its_request is None:
            continue
        its = parts[row.replica, row.its_run]
        arrived = [e for e in its.of(v.RequestArrived) if e.request == row.its_request]
        ended = [e for e in its.of(v.RequestFinished) if e.request == row.its_request]
        if arrived and ended and ended[0].reason == "length":
            assert delivered[row.request] == arrived[0].max_tokens


def test_why_tells_the_whole_way_of_each_request(log):
    """Of requests that were routed twice, and of two others."""
    asked, runs, rows = read(log), log.runs, read(log).decision_rows
    twice = [row.request for row in rows if row.attempt > 1]
    for number in {rows[0].request, rows[-1].request, *twice[:3]}:
        told, its = asked.why(number), [row for row in rows if row.request == number]
        for row in its:
            assert f"routed to replica {row.replica}," in told
        placed = [row for row in its if row.its_request is not None]
        assert told.count("its request") == len(placed)
        for row in placed:
            run = runs[row.replica][row.its_run - 1]
            part = run.part_with(row.its_request)
            admitted = [e for e in part.of(v.Admitted) if e.request == row.its_request]
            if admitted:
                step = read(part).request(row.its_request).first_token_step or part.state().step
                assert read(part).why(row.its_request, step) in asked.why(number, step)
        lost = any(isinstance(e, c.RequestLost) and e.request == number for e in log)
        assert ("its client got an error" in told) == lost


@pytest.mark.parametrize("router", ["prefix_events", "prefix_tree", "round_robin"])
def test_of_a_long_log_the_end_is_replayed_from_where_its_replicas_were(router, monkeypatch):
    work, settings = speakers(150, per_second=25), config(blocks=200)
    log = simulate_cluster(work, settings, cost=COST, replicas=3, router=router, lag_ms=LAG_MS)
    routed = {event.request: event for event in log if isinstance(event, c.Routed)}
    assert replayed_cluster(log) is log
    for share in (3, 2):
        monkeypatch.setattr("visualizer.indexed.part.MOST_OF_CLUSTER", len(log) // share)
        replay = ClusterReplay(cut := replayed_cluster(log))
        assert isinstance(cut, ClusterPart) and any(replay.recorded.begun.values())
        again = [event for event in replay.run(ClusterChange()) if isinstance(event, c.Routed)]
        before = [routed[replay.recorded.numbers[event.request]] for event in again]
        assert len(again) > 20
        for name in ("replica", "loads", "hits"):
            one, two = ([getattr(event, name) for event in some] for some in (again, before))
            assert one == two, (router, share, name)
    two = study_cluster(cut, [ClusterChange(replicas=2), ClusterChange(replicas=5)])
    assert {run for run, _ in zip(two.rows[0].changed, "ab", strict=True)} == {len(again)}
    assert_names(two.notes[-1], "end of a long log", "caches")


def test_the_end_of_a_log_with_faults_is_replayed_too(log):
    for share in (0.2, 0.5, 0.8):
        events = round(share * len(log))
        part = ClusterPart.cut(log, events, len(log) - events)
        for own in part.parts:
            own.log.state()
        study = study_cluster(part, [ClusterChange(replicas=1)])
        assert study.rows[0].replayed > 0.7 * study.rows[0].recorded


def test_what_if_replays_all_requests_that_reached_a_replica(log):
    rows = read(log).decision_rows
    placed = {row.request for row in rows if row.its_request is not None}
    study = study_cluster(log, [ClusterChange(replicas=3, router="round_robin")])
    gone = recorded_faults(log, {"": range(2)})
    assert len(gone) == 1
    for run in (study.replayed, study.first):
        replayed = read(run).decision_rows
        answered = {row.request for row in replayed if row.ttft_ms is not None}
        assert len(answered) == len({row.request for row in replayed}) == len(placed)
        for row in replayed:
            assert row.replica != "0" or not gone[0].noticed_ms < row.routed_ms < gone[0].back_ms
    continued = [
        {row.request for row in read(one).decision_rows if row.output_tokens}
        for one in (log, study.replayed)
    ]
    assert continued[1] or not continued[0]
    absent = len({row.request for row in rows}) - len(placed)
    assert any(f"{absent} request" in note for note in study.notes) == bool(absent)


def test_an_unchanged_replay_of_a_simulated_cluster_is_the_same():
    away = Fault("1", 240.0, 240.0, 400.0)
    faulty = simulate_cluster(
        speakers(seed=2), config(), cost=COST, replicas=3, router="prefix_tree", faults=[away]
    )
    for log in (three_replicas(), faulty):
        assert read(study_cluster(log, []).replayed).decision_rows == read(log).decision_rows


def test_a_window_begins_with_what_is_ejected():
    log = list(faults()["stop"])
    at = next(at for at, event in enumerate(log) if isinstance(event, c.ReplicaEjected))
    window = ClusterLog(window=2)
    for event in log[: at + 9]:
        window.append(event)
    assert log[at] in window.head()
