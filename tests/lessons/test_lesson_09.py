"""Lesson 09's exercise: right victim rules are accepted and run in the engine."""

import pytest

from checks import check
from checks.lesson_09 import Crowd, Shortage, YourVictims, attempt, cases
from engine import Cost, simulate
from engine.core.log.vocabulary import Preempted
from engine.core.scheduling.policies import Priority
from engine.simulation.scenarios import scenario
from solutions.lesson_09 import victim as solution
from visualizer import read

OWN = Priority


def size(one):
    return len(one.running) if isinstance(one, Shortage) else 9


def the_least_work_bar_the_oldest(running, needed_by):
    least = max(priority for _, priority, _, _, _ in running)
    peers = sorted((arrival, done, id_) for id_, p, arrival, done, _ in running if p == least)
    _, *younger = peers
    return min(younger, key=lambda one: one[1])[2] if younger else peers[0][2]


def the_second_oldest(running, needed_by):
    """Keep the order by urgency and age; the oldest of the least urgent is the head of the rest."""
    ranked = sorted(running, key=lambda row: (-row[1], row[2]))
    peers = [row[0] for row in ranked if row[1] == ranked[0][1]]
    return peers[:2][-1]


RIGHT = [solution, the_least_work_bar_the_oldest, the_second_oldest]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_rule_is_accepted_and_no_urgent_request_is_stopped_by_it(right) -> None:
    policy = check.lesson_09(right)
    hurry = scenario("priority")
    log = simulate(hurry.workload, hurry.config, cost=Cost(10, 0.25), policy=policy)
    assert log[0].classes["policy"] == "YourVictims"
    dev = read(log).requests.loc[4]
    assert (dev.preemptions, dev.finished_step) == (0, 21)
    assert set(read(log).requests.finish_reason) == {"length"}


def test_the_solution_is_the_engines_own_rule_and_another_is_quicker_as_the_lesson_says() -> None:
    hurry = scenario("priority")
    own = hurry.run()
    log, quicker = (
        simulate(hurry.workload, hurry.config, cost=Cost(10, 0.25), policy=YourVictims(rule))
        for rule in (solution, the_least_work_bar_the_oldest)
    )
    assert read(log).requests.equals(read(own).requests)
    assert len(read(quicker).steps) < len(read(own).steps) == 39


def test_the_engine_uses_the_learners_part() -> None:
    """Preempt the first in line: a rule that the check rejects shows which part decides."""
    hurry = scenario("priority")
    policy = YourVictims(lambda running, needed_by: running[0][0])
    log = simulate(hurry.workload, hurry.config, cost=Cost(10, 0.25), policy=policy)
    assert log.of(Preempted)[0].request == 1


def test_the_runs_are_tight_enough_for_preemptions() -> None:
    for crowd in (one for one in cases() if isinstance(one, Crowd)):
        asked = []

        def rule(running, needed_by, asked=asked):
            asked.append(needed_by)
            return solution(running, needed_by)

        attempt(rule, crowd)
        assert asked
