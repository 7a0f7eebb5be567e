"""Inferred reasons equal the recorded ones, for our own logs and for logs in a foreign order."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.inferred_reasons import Confusion, measure, report, stripped
from engine.events import vocabulary as v
from engine.events.log import EventLog
from engine.why.inference import ReasonInference, infer_reasons
from tests.engine.workloads import make_engine, play, random_workload
from visualizer.sources import read_source

VLLM = Path(__file__).parents[1] / "fixtures" / "vllm"
KNOWN_ORDER = ("fcfs", "priority", "sjf")


def recorded(seed: int) -> EventLog:
    workload, log = random_workload(seed, may_be_async=True), EventLog()
    play(make_engine(workload, log), workload)
    return log


def preempted_first(log: EventLog) -> EventLog:
    """Move each step's preemptions to its start, as a reader of one line per step does."""
    events, at = list[v.Event](), -1
    for event in log:
        match event:
            case v.StepStarted():
                events.append(event)
                at = len(events)
            case v.Preempted() | v.BlockWithdrawn() if at >= 0:
                events.insert(at, event)
                at += 1
            case _:
                at = -1 if isinstance(event, v.StepScheduled) else at
                events.append(event)
    return EventLog.from_events(events)


def test_the_confusion_table(snapshot: Callable[[str, str], None]) -> None:
    found = measure()
    assert all(one.equal >= 0.95 * one.total > 0 for one in found.values())
    snapshot("inferred_reasons", report(found) + "\n")


def test_inferred_reasons_of_random_workloads_are_the_recorded_ones(
    soak: bool, first_seed: int
) -> None:
    found = Confusion()
    for seed in range(first_seed, first_seed + (2000 if soak else 100)):
        log = recorded(seed)
        if random_workload(seed).config.policy in KNOWN_ORDER:
            found.add(log, infer_reasons(stripped(log)))
    assert found.total > 1000
    assert found.equal >= 0.999 * found.total, str(found)


def test_what_is_inferred_with_a_policy_of_unknown_order_is_true() -> None:
    """Only reasons that do not depend on the order are given."""
    found = 0
    for seed in range(60):
        if random_workload(seed).config.policy in KNOWN_ORDER:
            continue
        log = recorded(seed)
        for one, other in zip(log, infer_reasons(stripped(log)), strict=True):
            if isinstance(other, v.StepScheduled) and other.blocked is not None:
                assert isinstance(one, v.StepScheduled)
                deferred = (other.blocked.request, "policy") in one.skipped
                assert one.blocked == other.blocked or deferred
                found += 1
    assert found > 50


def test_a_reader_of_one_line_per_step_may_put_preemptions_first() -> None:
    preemptions = 0
    for seed in range(120):
        config = random_workload(seed, may_be_async=True).config
        if config.policy not in KNOWN_ORDER:
            continue
        moved = preempted_first(recorded(seed))
        try:
            moved.state()
        except ValueError:
            continue  # blocks of this step were given to another request before the preemption
        for one, other in zip(moved, infer_reasons(stripped(moved)), strict=True):
            if isinstance(one, v.Preempted):
                assert isinstance(other, v.Preempted)
                preemptions += one.needed_by == other.needed_by
    assert preemptions > 20


def test_recorded_reasons_stay_as_they_are() -> None:
    for seed in range(20):
        log = recorded(seed)
        inference = ReasonInference()
        for event in log:
            noted = inference.note(event)
            if isinstance(event, v.Preempted) or getattr(event, "blocked", None) is not None:
                assert noted == event


def test_a_source_that_does_not_know_the_budget_gets_no_reason_about_it() -> None:
    log = recorded(2)
    reasons = [event.blocked.reason for event in log.of(v.StepScheduled) if event.blocked]
    assert "token_budget" in reasons
    log = stripped(log)
    started = log[0]
    assert isinstance(started, v.RunStarted)
    started.settings["token_budget"] = None
    inferred = [event.blocked for event in infer_reasons(log).of(v.StepScheduled)]
    assert "token_budget" not in [one.reason for one in inferred if one is not None]


def of_vllm(name: str) -> Confusion:
    log = read_source(VLLM / f"{name}.jsonl.gz")
    assert isinstance(log, EventLog)
    found = Confusion()
    found.add(log, infer_reasons(stripped(log)))
    return found


@pytest.mark.parametrize("name", ["vllm_calm", "vllm_tight", "vllm_shared_prefix", "drafts"])
def test_the_inferred_reasons_of_a_real_vllm_are_those_that_its_scheduler_gave(name: str) -> None:
    """A recorder inside vLLM wrote down the reasons; without them, they are inferred again."""
    found = of_vllm(name)
    assert found.equal == found.total, str(found)
    assert found.total > 100 or name in ("vllm_calm", "vllm_shared_prefix")


@pytest.mark.parametrize("name", ["async", "rotated.part2"])
def test_without_token_ids_the_reasons_are_right_and_the_numbers_may_not_be(name: str) -> None:
    """What the head would find in the cache is unknown, so it may need fewer blocks."""
    found = of_vllm(name)
    assert all(said == inferred for _, said, inferred in found.counts)
    assert found.total > 20
