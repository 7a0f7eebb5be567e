"""A simulated cluster: one clock, causes before effects, and deaths that lose as little as possible."""

import pytest
from hypothesis import given, settings

from engine import (
    ClusterLog,
    Cost,
    CostRunner,
    EngineConfig,
    SamplingParams,
    Workload,
    simulate,
    simulate_cluster,
)
from engine.cluster import events as c
from engine.cluster import router_named
from engine.core.log import vocabulary as v
from engine.core.scheduling.policies import LongestPrefixMatch
from engine.simulation.workload import Arrival, Input, poisson, uniform
from tests.engine.routing.clusters import COST, Case, cases, check_decision
from tests.facts import raises_naming
from visualizer import read


def without_start(log: object) -> list[object]:
    """The events with their times, which are virtual except for the date in the first event."""
    events = list(log)
    return [type(events[0]), *events[1:]]


@settings(max_examples=50, deadline=None)
@given(cases())
def test_one_replica_does_what_simulate_does(case: Case) -> None:
    case.replicas, case.faults = 1, []
    alone = simulate(case.workload, case.config, cost=COST)
    assert without_start(case.run().replicas["0"]) == without_start(alone)


@settings(max_examples=80, deadline=None)
@given(cases())
def test_causes_come_before_effects(case: Case) -> None:
    """A request is routed, then arrives at its replica, then is admitted, then has a token."""
    log = case.run()
    routed, placed, left = {}, {}, {}
    for event in log:
        match event:
            case c.Routed():
                assert event.replica not in left
                assert (
                    event.loads.keys() == {str(one) for one in range(case.replicas)} - left.keys()
                )
                check_decision(event, event.loads)
                routed[event.request, event.replica] = event.t["at"]
            case c.Placed():
                assert event.t["at"] >= routed[event.request, event.replica]
                placed[event.replica, event.its_request] = event.request
            case c.ReplicaLeft():
                left[event.replica] = event.t["at"]
            case c.ReplicaJoined():
                left.pop(event.replica, None)
            case c.Of():
                assert event.replica not in left
    for replica, its in log.replicas.items():
        arrived = {}
        for event in its:
            if isinstance(event, v.RequestArrived):
                arrived[event.request] = event.t["at"]
                request = placed.get((replica, event.request))
                if request is not None:
                    assert routed[request, replica] <= event.t["at"]
            elif isinstance(event, v.StepFinished):
                assert event.t["end"] <= left.get(replica, event.t["end"])
                for row in event.tokens:
                    if row.request in arrived:
                        assert arrived[row.request] <= event.t["start"] < event.t["end"]


@settings(max_examples=80, deadline=None)
@given(cases())
def test_every_request_ends_on_one_replica_or_is_lost(case: Case) -> None:
    log = case.run()
    died = {event.replica for event in log if isinstance(event, c.ReplicaLeft)}
    assert died == {fault.replica for fault in case.faults}
    for replica, its in log.replicas.items():
        assert replica in died or not its.state().requests
    rows: dict[int, list] = {}
    for row in read(log).decision_rows:
        rows.setdefault(row.request, []).append(row)
    arrivals = [one for one in case.workload.inputs if isinstance(one, Arrival)]
    assert len(rows) == len(arrivals)
    lost = [event.request for event in log if isinstance(event, c.RequestLost)]
    assert len(lost) == len(set(lost))
    for request, attempts in rows.items():
        assert [row.attempt for row in attempts] == [*range(1, len(attempts) + 1)]
        last = attempts[-1]
        for failed in attempts[:-1]:
            assert failed.replica in died and not failed.lost
        if request in lost:
            assert last.lost and len(died) == case.replicas
        elif last.replica not in died:
            ends = log.replicas[last.replica].of(v.RequestFinished)
            assert last.its_request in {end.request for end in ends}


def test_loads_count_what_is_in_flight() -> None:
    workload = Workload.generate(
        40, arrivals=poisson(40), prompt=uniform(5, 40), output=uniform(1, 12), seed=3
    )
    log = simulate_cluster(workload, cost=Cost(10, 0.5), replicas=3, router="power_of_two")
    logs, ends = log.replicas, {}
    for row in read(log).decision_rows:
        its = read(logs[row.replica]).request(row.its_request)
        assert row.routed_ms is not None and its.e2e_ms is not None
        ends[row.request] = row.routed_ms + its.e2e_ms
    before: list[c.Routed] = []
    for event in log:
        if isinstance(event, c.Routed):
            now = event.t["at"] / 1000
            for replica, load in event.loads.items():
                its = [one for one in before if one.replica == replica]
                assert load == sum(ends[one.request] > now + 1e-6 for one in its)
            before.append(event)
    assert max(max(one.loads.values()) for one in before) == 3


def test_news_is_late_by_the_lag() -> None:
    """With a lag, a request right behind another of its prefix finds nothing in the logs."""
    prompt = [97] * 100

    def predicted(gap_ms: float, lag_ms: float) -> int:
        workload = Workload(
            [
                Arrival(prompt=prompt, params=SamplingParams(max_tokens=1), at_ms=at)
                for at in (0, gap_ms)
            ]
        )
        log = simulate_cluster(
            workload,
            EngineConfig(token_budget=200),
            cost=Cost(10, 0.1),
            replicas=1,
            router=router_named("prefix_events", guesses=False),
            lag_ms=lag_ms,
        )
        return read(log).decision_rows[1].predicted_tokens

    assert predicted(19.9, 0) == 0  # the step takes 20 ms
    assert predicted(20, 0) == 96
    assert predicted(69.9, 50) == 0
    assert predicted(70, 50) == 96


def dying(at_ms: float) -> tuple[ClusterLog, list[str]]:
    """Two requests in turn on two replicas, of which the first dies."""
    workload = Workload(
        [Arrival(prompt=[97] * 10, params=SamplingParams(max_tokens=5)) for _ in range(2)]
    )
    log = simulate_cluster(
        workload, cost=Cost(10, 1), router="round_robin", fail={"0": at_ms}, lag_ms=500
    )
    return log, [type(event).__name__ for event in log if not isinstance(event, c.Of)]


def test_a_request_without_a_token_moves() -> None:
    log, kinds = dying(19)  # its first token would come at 20 ms
    assert "RequestLost" not in kinds
    first, _, again = read(log).decision_rows
    assert (again.request, again.attempt, again.replica) == (first.request, 2, "1")
    assert again.routed_ms == 19
    assert again.ttft_ms is not None and again.ttft_ms > 20  # since the first decision
    assert first.ttft_ms is None
    assert len(log.replicas["1"].of(v.RequestFinished)) == 2


def test_a_request_with_a_token_is_continued() -> None:
    log, kinds = dying(20)
    assert "RequestLost" not in kinds
    again = [event for event in log if isinstance(event, c.Routed)][-1]
    assert (again.request, again.attempt, again.prompt, again.output) == (1, 2, 10, 1)
    # sent before the death, though the lag was longer
    assert read(log).decision_rows[0].ttft_ms == 20
    whole, continued = log.replicas["1"].of(v.RequestArrived)
    assert len(continued.output) == 1
    tokens: dict[int, list[int]] = {}
    for step in log.replicas["1"].of(v.StepFinished):
        for row in step.tokens:
            tokens.setdefault(row.request, []).extend(row.ids)
    assert len(tokens[whole.request]) == 5 and len(tokens[continued.request]) == 4


@pytest.mark.parametrize(
    ("inputs", "change", "facts"),
    [
        ([], {"replicas": 0}, ["replicas", "0"]),
        ([], {"lag_ms": -1}, ["lag_ms", "-1"]),
        ([], {"fail": {"5": 1}}, ["fail", "'5'", "0, 1"]),
        ([Arrival(step=3, prompt=[97])], {}, ["3", "pinned"]),
        ([Arrival(at_ms=2, prompt=[97]), Arrival(at_ms=1, prompt=[97])], {}, ["1"]),
    ],
)
def test_an_argument_or_an_input_that_a_cluster_cannot_play_is_named(
    inputs: list[Input], change: dict, facts: list[str]
) -> None:
    with raises_naming(ValueError, *facts):
        simulate_cluster(Workload(inputs), cost=COST, **change)


@settings(max_examples=40, deadline=None)
@given(cases())
def test_equal_arguments_give_equal_logs(case: Case) -> None:
    assert case.run().deterministic() == case.run().deterministic()


def test_each_replica_has_parts_of_its_own() -> None:
    workload = Workload([Arrival(prompt=[97] * 20, at_ms=at) for at in range(6)])
    log = simulate_cluster(
        workload,
        cost=CostRunner(10, 1, outputs={1: 2}),
        policy=LongestPrefixMatch(),
        router="round_robin",
    )
    for its in log.replicas.values():
        assert its[0].classes["policy"] == "LongestPrefixMatch"
        assert read(its).request(1).output_tokens == 2
