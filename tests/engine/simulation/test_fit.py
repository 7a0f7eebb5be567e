"""The fit recovers a machine's prices from its log, despite pauses in its clock."""

import random
from dataclasses import asdict

import pytest

from engine import Cost, CostRunner, EngineConfig, EventLog
from engine.core.log import vocabulary as v
from engine.simulation.fit import fit
from tests.engine.simulation.pinned import long_document, run_pinned
from tests.facts import assert_names

PRICES = (4, 0.1, 0.5, 0.002, 1e-4, 0.05, 0.8)


def mixed_log(prices: tuple[float, ...] = PRICES) -> EventLog:
    """Prefill chunks and decodes, alone and together, at many lengths."""
    rng = random.Random(3)
    config = EngineConfig(token_budget=48, max_kv_tokens=8192, prefix_cache=False)
    speakers = [(rng.randint(1, 80), rng.randint(1, 150), rng.randint(1, 60)) for _ in range(40)]
    return run_pinned(CostRunner(**asdict(Cost(*prices))), config, speakers).log


def delay(log: EventLog, step: int, inside: int = 0, after: int = 0) -> None:
    """Add microseconds within a step or after it; all later times shift."""
    late = 0
    for number, event in enumerate(log.of(v.StepFinished), start=1):
        event.t["start"] += late
        late += inside if number == step else 0
        event.t["end"] += late
        late += after if number == step else 0


def assert_prices(cost: Cost, prices: tuple[float, ...], within: float) -> None:
    for name, price in asdict(Cost(*prices)).items():
        assert getattr(cost, name) == pytest.approx(price, rel=within, abs=1e-3), name


@pytest.mark.parametrize(
    "prices",
    [(10, 0.25), PRICES, (0, 1, 0, 0.01), (0, 0, 2, 0, 0.01), (7.5, 0), (5, 0.2, 0, 0, 0, 0.4, 0)],
)
def test_the_prices_are_found_again(prices: tuple[float, ...]) -> None:
    found = fit(mixed_log(prices))
    assert_prices(found.cost, prices, within=0.001)
    assert found.rms_ms < 0.001  # the clock counts whole microseconds
    assert_names(found, f"{found.rms_ms:.3g}")


def test_noise_stays_in_the_residuals_and_turns_no_price_negative() -> None:
    rng, engine = random.Random(0), long_document(32)
    for step in range(1, engine.step_count + 1):
        delay(engine.log, step, inside=rng.randint(-9000, 9000))
    found = fit(engine.log)
    assert min(getattr(found.cost, name) for name in Cost.__dataclass_fields__) >= 0
    assert 2 < found.rms_ms < 9
    assert len(found.residuals_ms) == engine.step_count


@pytest.mark.parametrize("step", [1, 60, 150])
def test_one_step_that_was_interrupted_spoils_nothing(step: int) -> None:
    log = mixed_log()
    delay(log, step, inside=5_000_000)
    assert_prices(fit(log).cost, PRICES, within=0.1)


def test_time_between_steps_belongs_to_the_step_before() -> None:
    log = mixed_log()
    for step in range(1, len(log.of(v.StepFinished))):
        delay(log, step, after=700)
    assert_prices(fit(log).cost, (PRICES[0] + 0.7, *PRICES[1:]), within=0.001)


def test_a_pause_belongs_to_no_step() -> None:
    log, events = mixed_log(), list[v.Event]()
    for event in log:
        events.append(event)
        if isinstance(event, v.StepFinished) and event.step in range(2, 120, 2):
            delay(log, event.step, after=(event.t["end"] - event.t["start"]) * 3 // 2)
            events += [v.EnginePaused(), v.EngineResumed()]
    assert_prices(fit(EventLog.from_events(events)).cost, PRICES, within=0.001)
    assert fit(log).mean_ms > fit(EventLog.from_events(events)).mean_ms


def test_what_all_steps_take_together_is_what_they_took() -> None:
    log, rng = mixed_log(), random.Random(1)
    for event in log.of(v.StepFinished):
        event.t["end"] += rng.randint(0, 2000)
    assert sum(fit(log).residuals_ms) == pytest.approx(0, abs=0.1)
