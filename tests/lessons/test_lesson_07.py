"""Lesson 07's exercise: right choices are accepted and run in the engine."""

import heapq

import numpy as np
import pytest

from checks import check
from checks.lesson_07 import YourEviction, cases
from engine import Cost, simulate
from engine.cache.radix_tree import RadixTree
from engine.events.vocabulary import RadixEvicted
from engine.simulation.scenarios import scenario
from solutions.lesson_07 import choose_leaf as solution
from tests.lessons.wrong.lesson_07 import takes_the_id_for_its_age


def sorts(nodes):
    for _, id_, children, lock in sorted((last, id_, c, lock) for id_, c, lock, last in nodes):
        if id_ and not children and not lock:
            return id_
    return None


def takes_from_a_heap(nodes):
    heap = [(last, id_) for id_, children, lock, last in nodes if id_ and not children and not lock]
    heapq.heapify(heap)
    return heapq.heappop(heap)[1] if heap else None


def scans_once(nodes):
    chosen, oldest = None, float("inf")
    for id_, children, lock, last in nodes:
        if id_ != 0 and children == 0 and lock == 0 and last < oldest:
            chosen, oldest = id_, last
    return chosen


def masks_an_array(nodes):
    """Return an integer of numpy: it is a number like any other."""
    rows = np.array(nodes)
    rows = rows[(rows[:, 0] != 0) & (rows[:, 1] == 0) & (rows[:, 2] == 0)]
    return rows[rows[:, 3].argmin(), 0] if len(rows) else None


@pytest.mark.parametrize("right", [solution, sorts, takes_from_a_heap, scans_once, masks_an_array])
@pytest.mark.parametrize("name", ["eviction", "preemption"])
def test_every_right_choice_is_accepted_and_runs_in_the_engine(right, name: str, capsys) -> None:
    tree_of = check.lesson_07(right)
    assert f"{right.__name__}() keeps its promises in all" in capsys.readouterr().out
    one = scenario(name)
    tree = tree_of(one.config.block_size)
    log = simulate(one.workload, one.config, cost=Cost(10, 0.25), tree=tree)
    tree.check_integrity()
    assert log[0].classes["tree"] == "YourEviction"
    assert log.deterministic()[1:] == one.run().deterministic()[1:]


def test_the_engine_uses_the_learners_part() -> None:
    """The leaf with the smallest id is a rule that no check accepts: it shows which part decides."""
    one = scenario("eviction")
    tree = YourEviction(takes_the_id_for_its_age, one.config.block_size)
    log = simulate(one.workload, one.config, cost=Cost(10, 0.25), tree=tree)
    assert next(event.node for event in log.of(RadixEvicted)) == 1
    assert next(event.node for event in one.run().of(RadixEvicted)) == 2


def stub(nodes):
    """Which leaf goes next."""
    ...


def later(nodes):
    raise NotImplementedError


@pytest.mark.parametrize("untouched", [stub, later])
def test_an_untouched_stub_counts_as_unwritten_and_the_engine_uses_its_own(
    untouched, capsys
) -> None:
    tree_of = check.lesson_07(untouched)
    assert "not written yet" in capsys.readouterr().out
    assert type(tree_of(8)) is RadixTree


def test_cases_come_smallest_first_and_in_no_kind_order() -> None:
    sizes = [len(family.parents) for family in cases()]
    assert sizes == sorted(sizes)
    # A kind order has the nodes sorted by id, or a child always behind its parent.
    assert sum(list(one.order) == sorted(one.order) for one in cases()) < len(sizes) / 3
