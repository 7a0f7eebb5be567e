"""Lesson 11's exercise: right reasons are accepted, and explain the log of a real vLLM."""

import pytest

from checks import check, lesson_11
from checks.lesson_11 import moments
from engine import Cost, EngineConfig, simulate
from engine.simulation.traffic import Traffic
from solutions.lesson_11 import reason as solution
from visualizer import read

CROWD = EngineConfig.like(
    "vllm", token_budget=32, max_batch_size=6, max_kv_tokens=160, block_size=8
)

OWN = lesson_11._first_that_holds


def size(one):
    return one.step.head is not None


def as_a_table(step):
    head = step.head
    if not head:
        return None
    new = (head.tokens + head.block_size - 1) // head.block_size - head.cached_blocks
    table = {
        "after_preemption": step.preempted,
        "batch_full": step.running >= step.max_num_seqs,
        "token_budget": not step.budget_left,
        "whole_sequence": new + head.evictable > step.free_blocks,
    }
    return next((name for name, holds in table.items() if holds), None)


@pytest.mark.parametrize("right", [solution, as_a_table, OWN])
def test_every_right_reason_is_accepted(right) -> None:
    told = check.lesson_11(right)
    assert told is right
    log = simulate(Traffic(requests=40, rate=60, seed=3).workload, CROWD, cost=Cost(10, 0.25))
    looks = moments(log)
    assert all(told(moment.step) == moment.logged for moment in looks)
    assert len({one.logged for one in looks}) > 2


def test_every_admission_of_a_log_is_a_moment_without_a_reason() -> None:
    log = simulate(Traffic(requests=40, rate=60, seed=4).workload, CROWD, cost=Cost(10, 0.25))
    admitted = [one for one in moments(log) if one.step.head and one.logged is None]
    rows = read(log).request_rows
    assert len(admitted) == len(rows) + sum(row.preemptions for row in rows)
    first = {}
    for one in admitted:
        first.setdefault(one.request, one)
    for row in rows:
        assert first[row.request].number == row.admitted_step
        assert first[row.request].step.head.tokens == row.prompt_tokens
        assert first[row.request].step.head.cached_blocks * 8 == row.cached_tokens
