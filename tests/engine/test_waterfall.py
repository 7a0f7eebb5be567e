"""Where the time went: spans add up to the latency, and each cause is the one that the log has."""

from collections.abc import Iterator

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import vocabulary as v
from engine.events.fold import State
from engine.events.log import EventLog
from engine.events.waterfall import RequestTime, Waterfall
from engine.events.waterfall.causes import CAUSES, FOR_ALL
from engine.scheduling.sampling_params import SamplingParams
from engine.simulation.cost_runner import CostRunner
from tests.engine.workloads import make_engine, play, random_workload

COMPUTES = {"prefill", "decode", "recomputed", "others_prefill"}
ENGINE = {"between_passes", "paused"}
Causes = dict[tuple[int, int], set[str]]


def recorded(seed: int) -> EventLog:
    workload = random_workload(seed, may_be_async=True)
    log = EventLog()
    play(make_engine(workload, log), workload)
    return log


def latencies(log: EventLog) -> Iterator[tuple[int, int, str]]:
    """Yield each ended request with its latency, straight from the events."""
    arrived: dict[int, int] = {}
    end, failed = 0, list[int]()
    for event in log:
        match event:
            case v.RequestArrived():
                arrived[event.request] = event.t["at"]
            case v.Forked():
                arrived[event.request] = arrived[event.parent]
            case v.StepFinished():
                end = event.t["end"]
                yield from ((request, end - arrived[request], "error") for request in failed)
                failed = []
            case v.RequestFinished(reason="error"):
                failed.append(event.request)
            case v.RequestFinished():
                yield event.request, max(0, end - arrived[event.request]), event.reason


def allowed_causes(log: EventLog) -> Causes:
    """Return which causes the log allows for each request in each step, read off event by event."""
    allowed: Causes = {}
    state, away = State(), set[int]()
    for event in log:
        state.apply(event)
        match event:
            case v.Preempted():
                away.add(event.request)
            case v.Admitted():
                away.discard(event.request)
            case v.StepScheduled():
                skipped = dict(event.skipped)
                rows = {row.request for row in event.rows}
                for request in state.requests:
                    if request in rows:
                        causes = COMPUTES | ENGINE
                    elif request in away:
                        causes = {"preempted", "paused"}
                    elif request in skipped:
                        causes = {skipped[request], "paused"}
                    else:
                        assert event.blocked is not None
                        causes = {event.blocked.reason, "paused"}
                    allowed[request, state.step] = causes
    return allowed


def check_spans(time: RequestTime, allowed: Causes, blocked: dict[int, v.Blocked | None]) -> None:
    assert all(span.duration > 0 and span.cause in CAUSES for span in time.spans)
    for one, other in zip(time.spans, time.spans[1:], strict=False):
        assert one.end == other.start
    assert sum(time.by_cause.values()) == time.total
    for span in time.spans:
        assert span.cause != "unknown", "the log has everything"
        if span.cause == "failed_step":
            continue
        causes = allowed.get((time.request, span.step)) or allowed.get(
            (time.life.parent, span.step)
        )
        if causes is None:
            assert span.cause in {"step_in_progress", "paused"}
            continue
        assert span.cause in causes, (time.request, span)
        if span.about is not None and span.cause != "preempted":
            head = blocked[span.step]
            assert head is not None and head.request == span.about != time.request
            assert head.reason == span.cause not in FOR_ALL


def check(log: EventLog) -> int:
    waterfall = Waterfall(log)
    blocked: dict[int, v.Blocked | None] = {}
    step = 0
    for event in log:
        if isinstance(event, v.StepStarted):
            step = event.step
        elif isinstance(event, v.StepScheduled):
            blocked[step] = event.blocked
    allowed = allowed_causes(log)
    e2e = log.requests.e2e_ms
    for request, latency, reason in latencies(log):
        time = waterfall[request]
        assert time.total == latency, (request, reason)
        if reason in ("stop", "length"):
            assert latency == round(e2e[request] * 1000)
    for time in waterfall:
        check_spans(time, allowed, blocked)
    return len(waterfall)


def test_spans_add_up_and_have_the_recorded_causes(soak: bool, first_seed: int) -> None:
    count, requests = 10_000 if soak else 300, 0
    for seed in range(first_seed, first_seed + count):
        try:
            requests += check(recorded(seed))
        except Exception as error:
            raise AssertionError(f"log of seed {seed}; repeat with --seed {seed}") from error
    print(f"\n{requests} requests of {count} workloads from seed {first_seed} add up")
