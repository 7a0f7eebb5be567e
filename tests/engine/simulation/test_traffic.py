"""Traffic: a changed setting changes only its part, so that two runs can be compared."""

from dataclasses import replace

import pytest

from engine.config import EngineConfig
from engine.events import vocabulary as v
from engine.simulation.on_model import IdleSkippingClock, play_on_model
from engine.simulation.traffic import Traffic, TrafficError
from tests.facts import raises_naming

CLASS = Traffic(requests=40)


def arrivals(traffic: Traffic):
    return traffic.workload.inputs


def test_equal_numbers_give_equal_traffic_and_another_seed_another() -> None:
    assert arrivals(CLASS) == arrivals(replace(CLASS))
    assert arrivals(CLASS) != arrivals(replace(CLASS, seed=3))


def test_more_requests_leave_those_before_as_they_were() -> None:
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


@pytest.mark.parametrize(("shared", "common"), [(0, 0), (50, 16), (100, 32)])
def test_all_begin_with_the_shared_part_and_with_nothing_more(shared: int, common: int) -> None:
    prompts = [one.prompt for one in arrivals(replace(CLASS, requests=12, shared=shared))]
    for prompt in prompts[1:]:
        same = 0
        while same < min(len(prompt), len(prompts[0])) and prompt[same] == prompts[0][same]:
            same += 1
        assert same == min(common, len(prompt) - 1, len(prompts[0]) - 1)


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
    assert log.requests.output_tokens.tolist() == asked
    assert log.requests.arrived_ms.tolist() == pytest.approx(
        [one.at_ms for one in arrivals(traffic)], abs=0.001
    )
    first = log.of(v.RequestArrived)[0]
    assert "".join(first.texts).endswith("".join(arrivals(traffic)[0].texts).strip())


def test_what_was_skipped_is_time_that_has_passed() -> None:
    clock = IdleSkippingClock()
    assert clock.now() < 1_000_000
    clock.skip_to(3_600_000_000)
    assert clock.now() >= 3_600_000_000
    clock.skip_to(5)
    assert clock.now() >= 3_600_000_000


def test_twice_the_rate_brings_the_same_people_in_half_the_time() -> None:
    slow, fast = arrivals(CLASS), arrivals(replace(CLASS, rate=2 * CLASS.rate))
    assert [one.prompt for one in slow] == [one.prompt for one in fast]
    assert [one.at_ms for one in slow] == pytest.approx([2 * one.at_ms for one in fast])
