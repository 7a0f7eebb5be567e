"""Where the time went: spans add up to the latency, and each cause is the one that the log has."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine, EventLog, SamplingParams
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from tests.engine.workloads import finish, named, random_log, simulated
from tests.parity.recorded_steps import read_recording
from visualizer import read
from visualizer.reading.waterfall import RequestTime, Waterfall
from visualizer.reading.waterfall.causes import CAUSES, FOR_ALL
from visualizer.reading.waterfall.records import Life

VLLM = Path(__file__).parents[1] / "fixtures" / "vllm"
COMPUTES = {"prefill", "decode", "recomputed", "others_prefill"}
Causes = dict[tuple[int, int], set[str]]


def recorded(seed: int) -> EventLog:
    """The log of a random workload; in every other one, requests were sent before the log has them."""
    log = random_log(seed, may_be_async=True)
    for arrival in log.of(v.RequestArrived):
        arrival.t["at"] -= (seed % 2) * min(arrival.t["at"], 700 * arrival.request)
    return log


def latencies(log: EventLog) -> Iterator[tuple[int, int, str]]:
    """Yield each ended request with its latency, straight from the events."""
    arrived, end, failed = dict[int, int](), 0, list[int]()
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
                        causes = COMPUTES | {"between_passes", "paused"}
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
    times = Counter[str]()
    for span in time.spans:
        times[span.cause] += span.duration
    assert time.by_cause == times and times.total() == time.total
    assert sum(part.time for part in time.parts) == time.total
    for part in time.parts:
        assert part.mark == ("inferred" if part.cause == "others_prefill" else "recorded")
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
    blocked, step = dict[int, v.Blocked | None](), 0
    for event in log:
        if isinstance(event, v.StepStarted):
            step = event.step
        elif isinstance(event, v.StepScheduled):
            blocked[step] = event.blocked
    allowed, rows = allowed_causes(log), read(log).requests
    for request, latency, reason in latencies(log):
        time = waterfall[request]
        assert time.total == latency, (request, reason)
        if reason in ("stop", "length"):
            ttft = rows.ttft_ms[request]
            assert ttft != ttft or time.ttft == round(ttft * 1000)  # NaN: it began elsewhere
    for time in waterfall:
        check_spans(time, allowed, blocked)
    return len(waterfall)


def test_spans_add_up_and_have_the_recorded_causes(soak: bool, first_seed: int) -> None:
    count, requests = 10_000 if soak else 30, 0
    for seed in range(first_seed, first_seed + count):
        with named(seed):
            requests += check(recorded(seed))
    print(f"\n{requests} requests of {count} workloads from seed {first_seed} add up")


def run(engine: Engine) -> Waterfall:
    finish(engine)
    return read(engine.log).waterfall


@pytest.mark.parametrize("name", ["calm", "tight", "shared_prefix"])
def test_the_parts_of_a_real_vllm_add_up_to_the_measured_latency(name: str) -> None:
    log = read_recording(VLLM / f"vllm_{name}.jsonl.gz")
    for row in read(log).request_rows:
        parts = read(log).why_slow(row.request).parts
        assert row.e2e_ms is not None
        assert sum(part.time for part in parts) == pytest.approx(1000 * row.e2e_ms, rel=0.01)
        assert "unknown" not in {part.mark for part in parts}


def test_what_others_prefill_adds_to_a_decode_is_measured_against_decodes_alone() -> None:
    engine = simulated()
    engine.submit([1] * 10, SamplingParams(max_tokens=6, ignore_eos=True))
    engine.step()
    engine.step()  # one decode alone: 11 ms
    engine.submit([2] * 30, SamplingParams(max_tokens=1))
    waterfall = run(engine)
    [added] = [span for span in waterfall[1].spans if span.cause == "others_prefill"]
    assert (added.duration, added.step) == (30_000, 3)
    assert waterfall.totals["others_prefill"] == 30_000


def test_tokens_computed_again_are_lost_and_new_ones_in_the_same_row_are_work() -> None:
    engine = simulated(max_kv_tokens=64, block_size=8, prefix_cache="off", max_batch_size=2)
    for token in (1, 2):
        engine.submit([token] * 24, SamplingParams(max_tokens=20, ignore_eos=True))
    time = run(engine)[2]
    step = next(span.step for span in time.spans if span.cause == "recomputed")
    took = {span.cause: span.duration for span in time.spans if span.step == step}
    again, both = time.life.work[step].again, took["recomputed"] + took["decode"]
    assert took["recomputed"] == both * again // (again + 1)


def test_the_time_in_which_messages_are_missing_is_unknown() -> None:
    """A gap lies between step 1, which ends at 30 ms, and step 2, which begins at 80 ms."""
    engine = simulated()
    engine.submit([1] * 20, SamplingParams(max_tokens=2, ignore_eos=True))
    engine.step()
    engine.log.append(v.EventsMissing(3, "the disk was full"))
    engine.clock.advance(50_000)
    time = run(engine)[1]
    assert [(one.cause, one.duration) for one in time.spans] == [
        ("prefill", 30_000),
        ("unknown", 50_000),
        ("decode", 11_000),
    ]
    assert [part.mark for part in time.parts] == ["recorded", "recorded", "unknown"]


def test_a_cause_is_marked_as_the_source_knows_its_facts() -> None:
    engine = simulated(max_batch_size=1)
    for token in (1, 2):
        engine.submit([token] * 4, SamplingParams(max_tokens=2, ignore_eos=True))
    run(engine)
    [started] = engine.log.of(v.RunStarted)
    facts = dict.fromkeys(("scheduled_tokens", "step_times", "queue"), "recorded")
    started.source = {"engine": "other 1", "facts": facts | {"waiting_reasons": "inferred"}}
    marks = {part.cause: part.mark for part in read(engine.log).why_slow(2).parts}
    assert marks == {"prefill": "recorded", "decode": "recorded", "batch_full": "inferred"}
    assert "batch full (steps 1, 2), inferred" in str(read(engine.log).why_slow(2))


@pytest.mark.parametrize(
    ("prompt", "settings"), [(30, {}), (30, {"admission": "whole"}), (20, {"preemption": False})]
)
def test_the_blocks_that_would_have_helped_do_help(
    prompt: int, settings: dict[str, object]
) -> None:
    def life(tokens: int, number: int) -> Life:
        engine = simulated(max_kv_tokens=tokens, block_size=8, prefix_cache="off", **settings)
        engine.submit([1] * 40, SamplingParams(max_tokens=12, ignore_eos=True))
        engine.submit([2] * prompt, SamplingParams(max_tokens=4, ignore_eos=True))
        waterfall = run(engine)
        assert ("memory" in str(waterfall[number])) == bool(waterfall[number].life.short)
        return waterfall[number].life

    assert life(64, 1).short is None, "it never waits"
    late = life(64, 2)
    assert late.short is not None
    step, missing = late.short
    assert min(late.work) > step
    assert min(life(64 + 8 * missing, 2).work) == step
    assert min(life(64 + 8 * (missing - 1), 2).work) > step, "one block less does not help"
