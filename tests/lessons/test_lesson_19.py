"""Lesson 19's exercise: right parts are accepted, and decide in the simulator."""

import numpy as np
import pytest

from checks import check
from checks.lesson_19 import YourRule
from engine import Cost, EngineConfig, simulate_cluster
from engine.cluster.events import Moved
from engine.cluster.simulated_roles import Roles
from engine.cluster.transfer import TransferCosts, blocks_to_move
from engine.simulation.speakers import Speaker, workload_of
from solutions.lesson_19 import fetch as solution
from visualizer import read

OWN = blocks_to_move


def size(one):
    return (hasattr(one.compute, "step_ms"), one.tokens)


def the_most_of_equal_ones(tokens, here, there, block_size, move_ms, compute_ms):
    best, least = 0, compute_ms(tokens - here * block_size)
    blocks = 1
    while here + blocks <= there and (here + blocks) * block_size < tokens:
        total = move_ms(blocks) + compute_ms(tokens - (here + blocks) * block_size)
        if total <= least:
            best, least = blocks, total
        blocks += 1
    return best


def with_numpy(tokens, here, there, block_size, move_ms, compute_ms):
    most = max(0, min(there, (tokens - 1) // block_size) - here)
    moving = [0, *(move_ms(blocks) for blocks in range(1, most + 1))]
    computing = [compute_ms(tokens - (here + blocks) * block_size) for blocks in range(most + 1)]
    return np.argmin(np.add(moving, computing))


RIGHT = [solution, the_most_of_equal_ones, with_numpy]


@pytest.mark.parametrize("part", RIGHT, ids=lambda part: part.__name__)
def test_a_right_part_is_accepted_and_with_straight_lines_decides_like_the_engine(part) -> None:
    rule = check.lesson_19(part)
    assert isinstance(rule, YourRule)
    for fixed, block, token in [(2, 0.13, 0.25), (2, 5, 0.25), (40, 1, 0.25), (0, 4, 1)]:
        costs = TransferCosts(fixed, block, token)
        for tokens, here, there in [(1000, 0, 62), (1000, 61, 62), (160, 3, 10), (16, 0, 1)]:
            asked = (tokens, here, there, 16, costs)
            assert rule(*asked) == blocks_to_move(*asked)


@pytest.mark.parametrize("part", RIGHT, ids=lambda part: part.__name__)
def test_a_right_part_decides_in_the_simulator(part) -> None:
    asked = []

    def fetch(*arguments):
        asked.append(part(*arguments))
        return asked[-1]

    people = workload_of(
        Speaker(name, own=8, shared=shared, output=4, at_ms=2000 * number)
        for number, (name, shared) in enumerate([("Ada", 24), ("Kim", 792), ("Lea", 792)])
    )

    def run(rule):
        roles = Roles(1, 1, TransferCosts(60, 2.4, 0.25), rule)
        return simulate_cluster(people, EngineConfig(), cost=Cost(10, 0.25), roles=roles)

    log = run(YourRule(fetch))
    assert set(asked) == {0, 48}  # the first of 49 blocks is here, from Ada
    assert [one.blocks for one in log if isinstance(one, Moved)] == [48]
    assert read(log).token_rows == read(run(blocks_to_move)).token_rows
