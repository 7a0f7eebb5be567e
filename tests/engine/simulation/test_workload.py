"""Workloads and the traffic of a class: generated ones repeat with their seed; idle time is skipped."""

import pytest
from msgspec.structs import replace

from engine import Cost, EngineConfig, Workload, simulate
from engine.core.log import vocabulary as v
from engine.simulation.on_model import play_on_model
from engine.simulation.traffic import Traffic, TrafficError
from engine.simulation.workload import bursts, lognormal, poisson, uniform
from tests.engine.witness import common
from tests.facts import raises_naming
from visualizer import read

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
    frame = read(simulate(workload, cost=COST)).requests
    assert frame.arrived_ms.tolist() == [0, 5]
    assert frame.admitted_step.tolist() == [1, 2]
    assert frame.ttft_ms[2] == pytest.approx(12 - 5 + 10 + 0.25 * 9)


def test_a_replay_by_time_keeps_the_times_of_arrival() -> None:
    log = simulate(drawn(40), cost=COST)
    faster = simulate(Workload.from_log(log, pinned="time"), cost=Cost(1, 0.01))
    assert read(faster).requests.arrived_ms.tolist() == read(log).requests.arrived_ms.tolist()
    assert read(faster).requests.ttft_ms.mean() < read(log).requests.ttft_ms.mean()
    with raises_naming(ValueError, "pinned", "step", "time", "day"):
        Workload.from_log(log, pinned="day")


def test_answers_have_their_drawn_lengths() -> None:
    workload = drawn(60)
    frame = read(simulate(workload, cost=COST)).requests
    assert frame.output_tokens.tolist() == [one.answers[0].length for one in workload.inputs]
    assert set(frame.finish_reason) == {"stop", "length"}
    assert set(frame.label) == {"group 1", "group 2", "group 3"}


CLASS = Traffic(requests=40)


def arrivals(traffic: Traffic):
    return traffic.workload.inputs


def test_more_requests_leave_those_before_as_they_were_and_another_seed_does_not() -> None:
    assert arrivals(CLASS) != arrivals(replace(CLASS, seed=3))
    few = arrivals(replace(CLASS, requests=10))
    many = arrivals(CLASS)[:10]
    assert [(one.at_ms, one.prompt, one.params) for one in few] == [
        (one.at_ms, one.prompt, one.params) for one in many
    ]


def test_lengths_and_rate_are_what_was_asked_for_on_average() -> None:
    many = arrivals(Traffic(requests=2000, rate=50, prompt_tokens=40, output_tokens=20))
    mean = sum(len(one.prompt) for one in many) / len(many)
    assert mean == pytest.approx(40, rel=0.03)
    assert {len(one.prompt) for one in many} == set(range(20, 61))
    assert sum(one.params.max_tokens for one in many) / len(many) == pytest.approx(20, rel=0.03)
    assert len(many) / many[-1].at_ms * 1000 == pytest.approx(50, rel=0.1)


@pytest.mark.parametrize(("percent", "shared"), [(0, 0), (50, 16), (100, 32)])
def test_all_begin_with_the_shared_part_and_with_nothing_more(percent: int, shared: int) -> None:
    prompts = [one.prompt for one in arrivals(replace(CLASS, requests=12, shared=percent))]
    for prompt in prompts[1:]:
        most = min(shared, len(prompt) - 1, len(prompts[0]) - 1)
        assert common(prompt, prompts[0]) == most


@pytest.mark.parametrize(
    ("field", "value"), [("requests", 0), ("rate", -1), ("prompt_tokens", 0), ("shared", 101)]
)
def test_a_number_out_of_range_is_named(field: str, value: int) -> None:
    with raises_naming(TrafficError, field, value):
        replace(CLASS, **{field: value})


def test_a_model_serves_all_requests_at_full_length_and_skips_idle_time() -> None:
    traffic = Traffic(requests=3, rate=0.001, prompt_tokens=12, output_tokens=4)
    log = play_on_model(traffic.workload, EngineConfig())
    asked = [one.params.max_tokens for one in arrivals(traffic)]
    assert read(log).requests.output_tokens.tolist() == asked
    assert read(log).requests.arrived_ms.tolist() == pytest.approx(
        [one.at_ms for one in arrivals(traffic)], abs=0.001
    )
    first = log.of(v.RequestArrived)[0]
    assert "".join(first.texts).endswith("".join(arrivals(traffic)[0].texts).strip())


def test_twice_the_rate_brings_the_same_people_in_half_the_time() -> None:
    slow, fast = arrivals(CLASS), arrivals(replace(CLASS, rate=2 * CLASS.rate))
    assert [one.prompt for one in slow] == [one.prompt for one in fast]
    assert [one.at_ms for one in slow] == pytest.approx([2 * one.at_ms for one in fast])
