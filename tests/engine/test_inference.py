"""Inferred reasons equal the recorded ones, for our own logs and for logs in a foreign order."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from tests.engine.inferred_reasons import Confusion, measure, report, stripped
from tests.engine.workloads import random_log, random_workload
from visualizer.reading.why.inference import infer_reasons
from visualizer.sources import read_source

VLLM = Path(__file__).parents[1] / "fixtures" / "vllm"
KNOWN_ORDER = ("fcfs", "priority", "sjf")


def test_the_confusion_table(snapshot: Callable[[str, str], None]) -> None:
    found = measure()
    assert all(one.equal >= 0.95 * one.total > 0 for one in found.values())
    snapshot("inferred_reasons", report(found) + "\n")


def test_inferred_reasons_of_random_workloads_are_the_recorded_ones(
    soak: bool, first_seed: int
) -> None:
    found = Confusion()
    for seed in range(first_seed, first_seed + (2000 if soak else 60)):
        log = random_log(seed, may_be_async=True)
        if random_workload(seed).config.policy in KNOWN_ORDER:
            found.add(log, infer_reasons(stripped(log)))
    assert found.total > 500
    assert found.equal >= 0.999 * found.total, str(found)


def test_what_is_inferred_with_a_policy_of_unknown_order_is_true() -> None:
    """Only reasons that do not depend on the order are given."""
    found = 0
    for seed in range(60):
        if random_workload(seed).config.policy in KNOWN_ORDER:
            continue
        log = random_log(seed, may_be_async=True)
        for one, other in zip(log, infer_reasons(stripped(log)), strict=True):
            if isinstance(other, v.StepScheduled) and other.blocked is not None:
                assert isinstance(one, v.StepScheduled)
                deferred = (other.blocked.request, "policy") in one.skipped
                assert one.blocked == other.blocked or deferred
                found += 1
    assert found > 50


def test_a_source_that_does_not_know_the_budget_gets_no_reason_about_it() -> None:
    log = random_log(2, may_be_async=True)
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
