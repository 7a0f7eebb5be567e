"""Lesson 04's exercise: right admissions are accepted and run in the engine."""

import numpy as np
import pytest

from checks import check
from checks.lesson_04 import YourAdmission
from engine import Cost, simulate
from engine.core.scheduling.policies import Fcfs
from engine.simulation.scenarios import scenario
from solutions.lesson_04 import admit as solution
from visualizer import read

OWN = Fcfs


def size(one):
    return len(one.waiting)


def as_a_tuple(*given):
    return tuple(solution(*given))


def with_sums_of_numpy(waiting, seats, budget_left, free_blocks, block_size):
    if not waiting:
        return []
    tokens, samples = (np.array([row[column] for row in waiting]) for column in (1, 2))
    fits = np.cumsum(tokens) - tokens < budget_left
    fits &= np.cumsum(samples) <= seats
    fits &= np.cumsum(-(-tokens // block_size)) <= free_blocks
    count = len(fits) if fits.all() else int(fits.argmin())
    return [id_ for id_, _, _ in waiting[:count]]


@pytest.mark.parametrize("right", [solution, as_a_tuple, with_sums_of_numpy])
def test_every_right_admission_is_accepted_and_runs_in_the_engine(right) -> None:
    policy = check.lesson_04(right)
    table = scenario("continuous_batching")
    log = simulate(table.workload, table.config, cost=Cost(10, 0.25), policy=policy)
    assert log[0].classes["policy"] == "YourAdmission"
    # The same decisions as the engine's own, step by step.
    own = table.run()
    assert (
        read(log)
        .requests.drop(columns="policy_key")
        .equals(read(own).requests.drop(columns="policy_key"))
    )
    assert len(read(log).steps) == 40


def test_the_engine_uses_the_learners_part() -> None:
    """A rule that the check rejects, one request per step, shows which part decides."""
    table = scenario("continuous_batching")
    policy = YourAdmission(lambda waiting, *room: [waiting[0][0]])
    log = simulate(table.workload, table.config, cost=Cost(10, 0.25), policy=policy)
    assert read(log).requests.admitted_step.tolist()[:4] == [1, 2, 3, 4]
