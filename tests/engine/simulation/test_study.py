"""A study: the recorded run, its replay and changed runs, with the error beside each number."""

import random
from dataclasses import replace

import pytest

from engine import ConfigError, EventLog, study
from engine.core.log import vocabulary as v
from engine.simulation.fit import FEWEST_STEPS, held_back
from tests.engine.simulation.pinned import slower
from tests.engine.simulation.test_fit import mixed_log
from tests.engine.simulation.test_replayable import stripped, vllm_log
from tests.facts import assert_names, raises_naming


def slowed(log: EventLog, factor: float) -> EventLog:
    """Make every step after the first half slower than before: no prices explain both halves."""
    half = len(log.of(v.StepFinished)) / 2
    return slower(log, lambda step, took: took * (factor - 1) if step > half else 0)


def test_known_prices_leave_no_error_on_held_back_steps() -> None:
    error = held_back(mixed_log())
    assert error.steps > 100
    assert max(error.median, error.p90, abs(error.bias)) < 0.001
    assert error.predicted_at(123_456) == pytest.approx(123_456, rel=0.001)


def test_noise_is_found_as_the_error_that_it_is() -> None:
    rng = random.Random(4)
    error = held_back(slower(mixed_log(), lambda _, took: took * rng.uniform(-0.2, 0.2)))
    assert 0.07 < error.median < 0.15  # uniform: a half of 20 %
    assert 0.15 < error.p90 < 0.25
    assert abs(error.bias) < 0.05


def test_an_error_is_not_hidden_by_neighbours_that_were_fitted() -> None:
    """The error of a machine that changes in the middle is seen in every measure of time."""
    error = held_back(slowed(mixed_log(), 2))
    assert error.median > 0.2
    again = study(slowed(vllm_log(), 2), {"token_budget": [32]})
    errors = {row.name: row.error for row in again.rows}
    assert max(abs(error) for name, error in errors.items() if name.startswith("ITL")) > 0.1
    assert any(row.is_within == [True] for row in again.rows)


def test_with_few_steps_the_error_is_unknown() -> None:
    short = EventLog()
    for event in mixed_log():
        if len(short.of(v.StepFinished)) < FEWEST_STEPS - 1:
            short.append(event)
    assert held_back(short) is None
    answer = study(short, {"token_budget": [32]})
    assert {row.error for row in answer.rows} == {None}
    assert_names(answer, "unknown")


def test_the_replay_of_a_simulated_run_is_that_run() -> None:
    """Its prices are found, so arrivals at the recorded times give the recorded schedule."""
    log = stripped(vllm_log())
    answer = study(log, {"token_budget": [32, 128], "policy": ["fcfs", "sjf"]})
    assert answer.changed == [
        f"token_budget={budget} policy={policy}"
        for budget in (32, 128)
        for policy in ("fcfs", "sjf")
    ]
    assert answer.reproduced.first is None
    assert answer.reproduced.equal == answer.reproduced.steps == len(log.of(v.StepFinished))
    for row in answer.rows:
        assert row.replayed == pytest.approx(row.recorded, rel=0.001), row.name
        assert row.error is None or abs(row.error) < 0.001, row.name
    steps = next(row for row in answer.rows if row.name == "steps")
    assert steps.changed[0] > steps.recorded > steps.changed[2]


def test_times_that_cannot_be_predicted_are_called_so() -> None:
    steady = study(mixed_log(), {"token_budget": [32]})
    assert steady.error is not None
    vague = replace(steady, error=replace(steady.error, median=0.6))
    [warning] = set(vague.statements()) - set(steady.statements()) - {vague.statements()[1]}
    assert "times" in warning
    assert vague.statements()[0] == warning


def test_a_sweep_has_an_end() -> None:
    with raises_naming(ConfigError, 24, 25):
        study(vllm_log(), {"token_budget": list(range(16, 41))})
