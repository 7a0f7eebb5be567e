"""The simulated machine: what a step costs, and where a script ends."""

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import vocabulary as v
from engine.scheduling.sampling_params import SamplingParams
from engine.simulation.cost_runner import CostRunner, Work
from engine.simulation.simulate import simulate
from engine.simulation.speakers import Speaker, workload_of
from tests.engine.simulation.pinned import run_pinned
from tests.facts import raises_naming


def test_a_request_stops_where_the_script_says() -> None:
    runner = CostRunner(10, 0.25, outputs={1: 3, 2: [104, 105]})
    engine = run_pinned(runner, EngineConfig(), [(1, 5, 20)] * 3)
    outputs = engine.log.requests
    assert outputs.output_tokens.tolist() == [3, 20, 20]
    assert outputs.finish_reason.tolist() == ["stop", "length", "length"]
    said = engine.log.tokens
    assert "".join(said.text[said.request == 2]).startswith("hi")


def test_rows_of_equal_length_are_read_as_far_as_the_longest_of_them() -> None:
    decodes = [v.ScheduledRow(1, 9, 1), v.ScheduledRow(2, 99, 1)]  # contexts of 10 and 100
    chunk = v.ScheduledRow(3, 20, 30)
    assert Work.of(decodes) == Work(2, rows=2, context=200, pairs=200, first=2, batched=1, calls=1)
    assert Work.of([chunk]) == Work(
        30, rows=1, context=50, pairs=1500, first=16, batched=1, calls=1
    )
    assert Work.of([decodes[0], chunk, decodes[1]]) == Work(32, 3, 250, 1700, 16, 1, calls=2)


def test_the_first_step_after_a_pause_costs_more() -> None:
    runner = CostRunner(10, 0, wake_ms=5)
    engine = Engine(runner, EngineConfig(), clock=runner.clock)
    times = []
    for pause in (0, 9_000, 11_000):  # a pause is one only when it is longer than the step before
        runner.clock.advance(pause)
        engine.submit("a", SamplingParams(max_tokens=1))
        start = runner.clock.now()
        engine.step()
        times.append((runner.clock.now() - start) / 1000)
    assert times == [10, 10, 15]


def test_a_machine_of_ones_own_says_how_long_a_step_takes() -> None:
    class Slower(CostRunner):
        def step_ms(self, rows, *, woken):
            return float(sum(row.start + row.count for row in rows))

    log = simulate(workload_of([Speaker("Ada", own=64, output=3)]), cost=Slower(0, 0))
    assert log.steps.duration_ms.tolist() == [64, 65, 66]


def test_what_cannot_be_is_refused() -> None:
    with raises_naming(ValueError, "per_token_ms", -1):
        CostRunner(10, -1)
