"""Workloads: generated ones repeat with their seed; the clock skips idle time."""

import pytest

from engine.config import EngineConfig
from engine.simulation.cost_runner import Cost
from engine.simulation.simulate import simulate
from engine.simulation.workload import (
    Arrival,
    Workload,
    bursts,
    lognormal,
    poisson,
    uniform,
)
from tests.engine.storyboard import FIRST_LOOK, FIRST_LOOK_CONFIG
from tests.engine.storyboard import simulate as play_speakers
from tests.facts import raises_naming

COST = Cost(10, 0.25)


def drawn(count: int, seed: int = 0, **changes) -> Workload:
    settings = {
        "arrivals": poisson(20),
        "prompt": uniform(4, 40),
        "output": lognormal(10, 0.7, 60),
        "groups": 3,
        "shared_tokens": 32,
        "max_tokens": 60,
    }
    return Workload.generate(count, seed=seed, **(settings | changes))


def test_the_seed_decides() -> None:
    assert drawn(50) == drawn(50)
    assert drawn(50) != drawn(50, seed=1)
    logs = [simulate(drawn(50), cost=COST) for _ in range(2)]
    assert logs[0].deterministic() == logs[1].deterministic()


def test_arrival_processes() -> None:
    times = [one.at_ms for one in drawn(4000).inputs]
    assert times == sorted(times)
    assert times[-1] / 4000 == pytest.approx(50, rel=0.05)  # ms between arrivals at 20 a second
    assert [one.at_ms for one in drawn(5, arrivals=bursts(2, 300)).inputs] == [0, 0, 300, 300, 600]
    assert {one.at_ms for one in drawn(5, arrivals=bursts(5, 300)).inputs} == {0}


def test_an_arrival_inside_a_step_waits_for_its_end() -> None:
    workload = drawn(2, arrivals=bursts(1, 5), prompt=uniform(8, 8), output=uniform(4, 4), groups=0)
    frame = simulate(workload, cost=COST).requests
    assert frame.arrived_ms.tolist() == [0, 5]
    assert frame.admitted_step.tolist() == [1, 2]
    assert frame.ttft_ms[2] == pytest.approx(12 - 5 + 10 + 0.25 * 9)


def test_a_log_gives_its_inputs() -> None:
    engine, requests = play_speakers(EngineConfig(**FIRST_LOOK_CONFIG), FIRST_LOOK)
    workload = Workload.from_log(engine.log)
    arrivals = [one for one in workload.inputs if isinstance(one, Arrival)]
    assert [one.step for one in arrivals] == [1, 1, 3, 5, 6]
    assert [one.label for one in arrivals] == list(requests)
    assert [one.answers[0].ids for one in arrivals] == [r.output_ids for r in requests.values()]
    with raises_naming(ValueError, "pinned", "step", "time", "day"):
        Workload.from_log(engine.log, pinned="day")


def test_a_replay_by_time_keeps_the_times_of_arrival() -> None:
    log = simulate(drawn(40), cost=COST)
    faster = simulate(Workload.from_log(log, pinned="time"), cost=Cost(1, 0.01))
    assert faster.requests.arrived_ms.tolist() == log.requests.arrived_ms.tolist()
    assert faster.requests.ttft_ms.mean() < log.requests.ttft_ms.mean()
    same = simulate(Workload.from_log(log, pinned="time"), cost=COST)
    assert same.deterministic()[1:] == log.deterministic()[1:]


def test_answers_have_their_drawn_lengths() -> None:
    workload = drawn(60)
    frame = simulate(workload, cost=COST).requests
    assert frame.output_tokens.tolist() == [one.answers[0].length for one in workload.inputs]
    assert set(frame.finish_reason) == {"stop", "length"}
    assert set(frame.label) == {"group 1", "group 2", "group 3"}
