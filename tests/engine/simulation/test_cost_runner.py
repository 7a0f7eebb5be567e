"""The simulated machine, also with a mixture of experts: what a step costs, and its experts' loads."""

import pytest

from engine import CostRunner, Engine, EngineConfig, EventLog, LogError, SamplingParams, simulate
from engine.core.log import State
from engine.core.log import vocabulary as v
from engine.core.log.expert_loads import packed, summed, unpacked
from engine.simulation.cost_runner import Work
from engine.simulation.mixture_runner import MixtureRunner
from engine.simulation.speakers import Speaker, workload_of
from tests.engine.drafters import Knowing, drafted
from tests.engine.simulation.pinned import run_pinned, texts_of
from tests.engine.workloads import windowed
from tests.facts import raises_naming
from visualizer import read
from visualizer.reading.without_text import log_without_text


def test_a_request_stops_where_the_script_says() -> None:
    runner = CostRunner(10, 0.25, outputs={1: 3, 2: [104, 105]})
    engine = run_pinned(runner, EngineConfig(), [(1, 5, 20)] * 3)
    outputs = read(engine.log).requests
    assert outputs.output_tokens.tolist() == [3, 20, 20]
    assert outputs.finish_reason.tolist() == ["stop", "length", "length"]
    said = read(engine.log).tokens
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
    assert read(log).steps.duration_ms.tolist() == [64, 65, 66]


PEOPLE = workload_of((Speaker("Ada", 1, own=20, output=12), Speaker("Bo", 2, own=30, output=12)))
SIZES = {"layers": 3, "experts": 8, "per_token": 2}


def served(*, config=None, **changes) -> EventLog:
    return simulate(PEOPLE, config, cost=MixtureRunner(5, 0.5, **SIZES | changes))


def test_every_scheduled_token_counts_once_per_expert():
    log = served(config=EngineConfig(max_kv_tokens=64, prefix_cache="off"))
    assert log.of(v.Preempted), "recomputed tokens count, too"
    for scheduled, finished in zip(log.of(v.StepScheduled), log.of(v.StepFinished), strict=True):
        tokens = sum(row.count for row in scheduled.rows)
        loads = read(log).expert_loads(finished.step)
        assert [sum(layer) for layer in loads.layers] == [2 * tokens] * 3
        assert all(max(layer) <= tokens for layer in loads.layers), "2 different experts per token"


def test_a_step_without_rows_has_no_loads():
    """Those of the step before are not repeated."""
    log = served(config=EngineConfig(async_scheduling=True))
    assert any(not scheduled.rows for scheduled in log.of(v.StepScheduled))
    for scheduled, finished in zip(log.of(v.StepScheduled), log.of(v.StepFinished), strict=True):
        assert bool(scheduled.rows) == bool(finished.expert_loads)


def test_skew_makes_some_experts_busier():
    flat, steep = (read(served(skew=skew)).expert_loads() for skew in (0.0, 2.0))
    for layer in range(3):
        assert flat.imbalance(layer) < 1.8
        assert steep.imbalance(layer) > 2


def test_a_step_costs_what_its_experts_cost():
    free, priced = served(), served(per_expert_ms=0.25)
    for before, after in zip(read(free).step_rows, read(priced).step_rows, strict=True):
        loads = read(priced).expert_loads(after.step)
        used = loads.experts - loads.idle
        assert after.duration_ms - before.duration_ms == pytest.approx(0.25 * used, abs=0.01)


def test_rejected_drafts_were_computed_and_count():
    log = simulate(
        PEOPLE,
        cost=MixtureRunner(5, 0.5, **SIZES),
        drafter=Knowing(texts_of(served()).values(), wrong=lambda position: position % 3 == 0),
    )
    proposed, accepted = drafted(log)
    assert accepted < proposed
    computed = sum(row.count for event in log.of(v.StepScheduled) for row in event.rows)
    assert sum(read(log).expert_loads().layers[0]) == 2 * computed


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"per_token": 9}, "per_token must be 1 to experts (8), got 9"),
        ({"per_expert_ms": -1.0}, "per_expert_ms"),
        ({"wake_ms": -1.0}, "wake_ms"),
    ],
)
def test_sizes_are_checked(changes, named):
    with raises_naming(ValueError, named):
        MixtureRunner(5, 0.5, **SIZES | changes)


@pytest.mark.parametrize(
    ("loads", "layer"),
    [
        ([0, 0, 3, 0, 1], [-2, 3, -1, 1]),
        ([1, 2], [1, 2]),
        ([0] * 128, [-128]),
        ([], []),
        ([5, 0], [5, -1]),
    ],
)
def test_idle_experts_are_packed(loads, layer):
    assert packed(loads) == layer
    assert unpacked(layer) == loads


def test_sums_need_equal_shapes():
    for wrong in ([[1]], [[1, -1], []], [[1, -2], [1]]):
        with pytest.raises(ValueError, match="zip"):
            summed([[1, 0, 0], []], wrong)
    with raises_naming(ValueError, "at most"):
        unpacked([-(10**12)])


def test_the_fold_sums_loads_and_a_keyframe_keeps_them():
    log, state = served(), State()
    for event in log:
        state.apply(event)
    steps = [read(log).expert_loads(event.step).layers for event in log.of(v.StepFinished)]
    assert state.expert_loads == read(log).expert_loads().layers
    assert sum(state.expert_loads[0]) == sum(sum(step[0]) for step in steps)
    restored = State()
    restored.restore(state.keyframe())
    assert restored.expert_loads == state.expert_loads
    assert read(windowed(log, 20)).expert_loads().layers == state.expert_loads


def test_a_log_without_experts_says_so():
    dense = simulate(PEOPLE, cost=CostRunner(5, 0.5))
    assert b"expert" not in dense.to_bytes()
    assert not dense.state().keyframe().state.expert_loads
    for step in (None, 1):
        with raises_naming(LogError, "mixture of experts"):
            read(dense).expert_loads(step)
    with raises_naming(LogError, "step 999"):
        read(served()).expert_loads(999)


def test_loads_leave_the_log_with_its_texts():
    """In a step with one token the loads reveal the token to a reader with the model."""
    quiet = log_without_text(served())
    assert b"expert_loads" not in quiet.to_bytes()
    assert b"expert_loads" not in log_without_text(windowed(served(), 20)).to_bytes()
