"""Lesson 16's exercise: right rules are accepted and decide in the engine."""

from itertools import accumulate

import pytest

from checks import check
from engine import Cost, EngineConfig, Workload, simulate
from engine.core.log.vocabulary import BlocksMoved
from engine.extensions.tier_prices import fetch_or_compute
from engine.simulation.workload import poisson, uniform
from solutions.lesson_16 import fetch_or_compute as solution

OWN = fetch_or_compute


def size(one):
    return len(one.fetch)


def with_the_savings_so_far(fetch_us, compute_us):
    each = (compute - fetch for fetch, compute in zip(fetch_us, compute_us, strict=True))
    saved = list(accumulate(each, initial=0))
    return max(range(len(saved)), key=lambda count: (saved[count], count))


RIGHT = [solution, with_the_savings_so_far]


@pytest.mark.parametrize("disk_ms, reads", [(0.001, True), (1, False)])
@pytest.mark.parametrize("right", RIGHT)
def test_every_right_rule_is_accepted_and_decides_in_the_engine(right, disk_ms, reads) -> None:
    assert check.lesson_16(right) is right
    agents = Workload.agents(
        3, 2, away_ms=poisson(1), instructions=32, prompt=uniform(64, 96), output=uniform(2, 4)
    )
    small = EngineConfig(max_kv_tokens=256, block_size=16, disk_kv_tokens=1024)
    machine = Cost(8, 0.1, per_disk_token_ms=disk_ms)
    log = simulate(agents, small, cost=machine, fetch_or_compute=right)
    assert log[1:] == simulate(agents, small, cost=machine)[1:]
    assert any(move.target == "gpu" for move in log.of(BlocksMoved)) == reads
