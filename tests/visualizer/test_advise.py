"""`underglass advise`: on a machine whose real cost is known, the advice holds, or there is none."""

import json
import random

import pytest

from engine import EngineConfig, EventLog, simulate
from engine.cluster.routed_parts import cluster_samples, routed_parts
from engine.cluster.simulate_cluster import simulate_cluster
from engine.core.log import vocabulary as v
from engine.simulation.cost_runner import CostRunner
from engine.simulation.measures import samples
from engine.simulation.step_times import StepTimes, arrival_delay
from engine.simulation.workload import Workload, poisson, uniform
from tests.engine.drafters import Guessing
from tests.server.console import invoke, refused
from visualizer.advice import Goal, GoalError, Refusal, advise, goals_of

WAY_MS = 2.0


class Machine(CostRunner):
    """A machine whose prefills cost more than any nine prices say, and whose steps vary.

    slows_after_ms  from then on, steps take four times as long
    hidden  so many tokens cost nothing; such a machine varies less
    """

    def __init__(self, seed: int, slows_after_ms: float = float("inf"), hidden: int = 0) -> None:
        super().__init__(8, 0.1, per_row_ms=0.1)
        self._rng, self._slows_after_us = random.Random(seed), slows_after_ms * 1000
        self._hidden, self._spread = hidden, 0.02 if hidden else 0.15

    def describe(self):
        return super().describe() | {"name": "real"}

    def step_ms(self, rows, *, woken):
        factor = 4 if self.clock.now() > self._slows_after_us else 1
        price = super().step_ms(rows, woken=woken) + any(row.count > 1 for row in rows)
        price -= 0.1 * min(self._hidden, sum(row.count for row in rows))
        return factor * self._rng.lognormvariate(0, self._spread) * price


def run(seed=0, slows_after_ms=float("inf"), replicas=1, hidden=0, **settings) -> EventLog:
    """A hundred requests for each replica, of which each takes 2 ms to the scheduler."""
    sizes = {"prompt": uniform(20, 120), "output": uniform(10, 30)}
    count, length = settings.pop("count", replicas), settings.pop("draft_length", 0)
    parts = {"drafter": Guessing(256, length)} if length else {}
    work = Workload.generate(100 * count, arrivals=poisson(20 * count), seed=3, **sizes)
    for one in work.inputs:
        one.way_ms = WAY_MS
    config = EngineConfig.like("vllm", token_budget=256, max_kv_tokens=8192).changed(**settings)
    if replicas > 1:
        return simulate_cluster(work, config, cost=lambda n: Machine(seed + n), replicas=replicas)
    return simulate(work, config, cost=Machine(seed, slows_after_ms, hidden), **parts)


@pytest.mark.parametrize(
    ("settings", "goal", "allowed", "expected"),
    [
        ({"max_batch_size": 3}, "p99 ttft < 300ms", [], {"max_batch_size"}),
        ({"token_budget": 18, "max_batch_size": 32}, "p90 queue < 90ms", [], {"token_budget"}),
        ({"max_batch_size": 3, "replicas": 2}, "p99 ttft < 300ms", [], {"max_batch_size"}),
        ({"max_batch_size": 3, "count": 1}, "p99 ttft < 80ms", ["replicas"], {"replicas"}),
        ({"draft_length": 16}, "p50 itl < 12.5ms", [], {"draft_length"}),
    ],
)
def test_the_bottleneck_is_found_and_the_prediction_holds(settings, goal, allowed, expected):
    best = advise(run(**settings), goals_of(goal), settings=allowed, replays=20).advice[0]
    assert best.changes.keys() == expected and best.meets
    log = run(seed=3, **(settings | best.changes))
    again = samples(log) if isinstance(log, EventLog) else cluster_samples(routed_parts(log))
    for one in (*best.goals, *best.others):
        statistic, _, measure = one.measure.rpartition(" ")
        measured = Goal(measure, statistic).value(again)
        assert 0.9 * one.low < measured < 1.1 * one.high, one
    assert best.steps[1] == pytest.approx(again.steps, rel=0.1)


def test_a_kind_that_no_price_describes_and_the_way_to_the_scheduler_are_measured():
    log = run(max_batch_size=8)
    assert arrival_delay(log) == pytest.approx(WAY_MS * 1000, rel=0.3)
    large = [one for one in StepTimes(log).held_back().kinds if one.steps > 50]
    assert {one.kind[0] for one in large} == {"decode", "mixed"}
    assert all(abs(one.mean) < 0.05 and abs(one.p99) < 0.15 for one in large)


def test_hidden_tokens_are_found_or_unknown():
    assert [StepTimes(run(hidden=size)).hidden for size in (0, 64)] == [0, 64]
    assert StepTimes(run()).flat_ms == 0 < StepTimes(run(hidden=64, token_budget=64)).flat_ms


def test_no_advice_where_times_cannot_be_predicted():
    with pytest.raises(Refusal, match="No advice: the machine's speed varied"):
        advise(run(max_batch_size=3, slows_after_ms=2500), goals_of("p50 itl < 1ms"))


def test_a_change_that_adds_nothing_to_another_is_left_out():
    settings, goals = ["max_batch_size", "policy", "token_budget"], goals_of("p99 ttft < 40ms")
    found = advise(run(max_batch_size=3), goals, settings=settings, replays=20).advice
    assert [one.changes.keys() for one in found] == [{"max_batch_size"}]


def test_a_window_of_a_long_log_leads_to_the_same_setting():
    log, goals = run(max_batch_size=3), goals_of("p99 ttft < 300ms")
    found = advise(log, goals, replays=16, steps=len(log.of(v.StepFinished)) // 3)
    assert found.advice[0].changes.keys() == {"max_batch_size"}
    assert found.requests < 100 and "were replayed" in found.note


def test_the_command_says_what_it_found(tmp_path):
    path = tmp_path / "run.jsonl"
    run(max_batch_size=3).save(path)
    asked = ["advise", str(path), "--replays", "16", "--goal"]
    goal = "p99 ttft < 300ms and throughput > 1 tokens/s"
    told = invoke(*asked, goal)
    assert "max_batch_size" in told.stdout and "--max-num-seqs" in told.stdout, told.stderr
    best, *others = json.loads(invoke(*asked, goal, "--json").stdout)["advice"]
    assert len(others) < 3 and best["goals"][0]["measure"] == "p99 ttft"
    assert "already met" in invoke(*asked, "p50 ttft < 9min").stdout
    refused(invoke(*asked, goal, "--settings", "seats"), "seats", "max_batch_size")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft < 1s", "p99 ttft"),
        ("p99 tftt < 1s", "ttft, itl"),
        ("p99 ttft < 1 parsec", "us, ms, s, min"),
        ("max itl < 0ms", "more than 0"),
    ],
)
def test_a_goal_that_cannot_be_read_says_what_is_allowed(text, says):
    with pytest.raises(GoalError, match=says):
        goals_of(text)
    assert goals_of("p99.9 ttft <= 1.5s, throughput>500")[0] == Goal("ttft", "p99.9", 1500)
