"""Lesson 04's exercise: right admissions are accepted and run in the engine."""

import numpy as np
import pytest

from checks import check
from checks.lesson_04 import cases
from engine import Cost, EngineConfig, simulate
from engine.scheduling.policies import Fcfs
from engine.simulation.scenarios import scenario
from solutions.lesson_04 import admit as solution
from tests.lessons.wrong.lesson_04 import blocks_of


def as_a_recursion(waiting, seats, budget_left, free_blocks, block_size):
    if not waiting:
        return []
    (id_, tokens, slots), *rest = waiting
    chunk = min(tokens, budget_left)
    blocks = blocks_of(tokens, block_size)
    if slots > seats or not chunk or blocks > free_blocks:
        return []
    left = (seats - slots, budget_left - chunk, free_blocks - blocks)
    return [id_, *as_a_recursion(rest, *left, block_size)]


def as_a_search_for_the_longest_beginning(waiting, seats, budget_left, free_blocks, block_size):
    for length in range(len(waiting), -1, -1):
        budget, blocks, idle = budget_left, 0, False
        for _, tokens, _ in waiting[:length]:
            chunk = min(tokens, budget)
            idle = idle or chunk == 0
            budget, blocks = budget - chunk, blocks + blocks_of(tokens, block_size)
        slots = sum(slots for _, _, slots in waiting[:length])
        if not idle and slots <= seats and blocks <= free_blocks:
            return tuple(id_ for id_, _, _ in waiting[:length])
    return []


def with_sums_of_numpy(waiting, seats, budget_left, free_blocks, block_size):
    if not waiting:
        return []
    tokens, samples = (np.array([row[column] for row in waiting]) for column in (1, 2))
    fits = np.cumsum(tokens) - tokens < budget_left
    fits &= np.cumsum(samples) <= seats
    fits &= np.cumsum(-(-tokens // block_size)) <= free_blocks
    count = len(fits) if fits.all() else int(fits.argmin())
    return [id_ for id_, _, _ in waiting[:count]]


RIGHT = [
    solution,
    as_a_recursion,
    as_a_search_for_the_longest_beginning,
    with_sums_of_numpy,
]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_admission_is_accepted_and_runs_in_the_engine(right, capsys) -> None:
    policy = check.lesson_04(right)
    assert f"{right.__name__}() keeps its promises in all" in capsys.readouterr().out
    table = scenario("continuous_batching")
    log = simulate(table.workload, table.config, cost=Cost(10, 0.25), policy=policy)
    assert log[0].classes["policy"] == "YourAdmission"
    # The same decisions as the engine's own, step by step.
    own = table.run()
    assert log.requests.drop(columns="policy_key").equals(own.requests.drop(columns="policy_key"))
    assert len(log.steps) == 40


def test_the_engine_uses_the_learners_part() -> None:
    """A rule that the check rejects, one request per step, shows which part decides."""
    from checks.lesson_04 import YourAdmission

    config = EngineConfig(max_batch_size=4, prefix_cache=False)
    policy = YourAdmission(lambda waiting, *room: [waiting[0][0]])
    log = simulate(
        scenario("continuous_batching").workload, config, cost=Cost(10, 0.25), policy=policy
    )
    assert log.requests.admitted_step.tolist()[:4] == [1, 2, 3, 4]


def stub(waiting, seats, budget_left, free_blocks, block_size):
    """Return the requests to admit in this step."""
    ...


def later(waiting, seats, budget_left, free_blocks, block_size):
    raise NotImplementedError


@pytest.mark.parametrize("untouched", [stub, later])
def test_an_untouched_stub_counts_as_unwritten_and_the_engine_uses_its_own(
    untouched, capsys
) -> None:
    policy = check.lesson_04(untouched)
    assert "not written yet" in capsys.readouterr().out
    assert isinstance(policy, Fcfs)


def test_cases_come_smallest_first() -> None:
    lengths = [len(queue.waiting) for queue in cases()]
    assert lengths == sorted(lengths)
