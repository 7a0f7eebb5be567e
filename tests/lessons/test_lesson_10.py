"""Lesson 10's exercise: right budgets are accepted and keep steps short."""

from fractions import Fraction

import pytest

from checks import check, lesson_10
from engine import Cost, EngineConfig, simulate
from engine.simulation.speakers import NAMES, Speaker, workload_of
from solutions.lesson_10 import pick_budget as solution
from visualizer import read

OWN = lesson_10._largest


def size(one):
    return one.decodes


def divides_exactly(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = (Fraction(itl_goal_ms) - Fraction(base_ms)) // Fraction(per_token_ms)
    return budget if budget > decodes else None


@pytest.mark.parametrize("right", [solution, divides_exactly])
def test_every_right_budget_is_accepted_and_is_the_one_that_runs(right) -> None:
    assert check.lesson_10(right) is right
    assert right(10, 0.25, 4, 30) == 80


def worst_gap(budget: int, base_ms: float, per_token_ms: float, decodes: int) -> float:
    """Return the longest wait for a token of `decodes` chats while a document is prefilled."""
    chats = [Speaker(name, own=1, output=20) for name in NAMES[:decodes]]
    people = workload_of([*chats, Speaker("Zoe", 3, own=400, output=2)])
    config = EngineConfig(token_budget=budget, max_kv_tokens=1024, prefix_cache=False)
    log = simulate(people, config, cost=Cost(base_ms, per_token_ms))
    return float(read(log).requests.itl_max_ms.iloc[:decodes].max())


@pytest.mark.parametrize(
    ("base_ms", "per_token_ms", "decodes", "goal"),
    [(10, 0.25, 4, 30), (5, 0.5, 2, 22), (20, 1, 5, 26), (0, 0.25, 1, 11.25)],
)
def test_what_the_check_promises_is_what_the_engine_does(
    base_ms, per_token_ms, decodes, goal
) -> None:
    budget = solution(base_ms, per_token_ms, decodes, goal)
    assert worst_gap(budget, base_ms, per_token_ms, decodes) <= goal
    assert worst_gap(budget + 1, base_ms, per_token_ms, decodes) > goal
