"""Lesson 08's exercise: right choices are accepted and run in the engine."""

import numpy as np
import pytest

from checks import check
from checks.lesson_08 import YourEviction, cases
from engine import Cost, simulate
from engine.core.cache.radix_tree import RadixTree
from engine.core.log.vocabulary import RadixEvicted
from engine.simulation.scenarios import scenario
from solutions.lesson_08 import choose_leaf as solution

OWN = RadixTree


def size(one):
    return len(one.parents)


def masks_an_array(nodes):
    """Return an integer of numpy: it is a number like any other."""
    rows = np.array(nodes)
    rows = rows[(rows[:, 0] != 0) & (rows[:, 1] == 0) & (rows[:, 2] == 0)]
    return rows[rows[:, 3].argmin(), 0] if len(rows) else None


@pytest.mark.parametrize("right", [solution, masks_an_array])
@pytest.mark.parametrize("name", ["eviction", "preemption"])
def test_every_right_choice_is_accepted_and_runs_in_the_engine(right, name: str) -> None:
    tree_of = check.lesson_08(right)
    one = scenario(name)
    tree = tree_of(one.config.block_size)
    log = simulate(one.workload, one.config, cost=Cost(10, 0.25), tree=tree)
    tree.check_integrity()
    assert log[0].classes["tree"] == "YourEviction"
    assert log.deterministic()[1:] == one.run().deterministic()[1:]


def test_the_engine_uses_the_learners_part() -> None:
    """The leaf with the smallest id is a rule that no check accepts: it shows which part decides."""

    def smallest_id(nodes):
        return min(id_ for id_, children, lock, _ in nodes if id_ and not children + lock)

    one = scenario("eviction")
    tree = YourEviction(smallest_id, one.config.block_size)
    log = simulate(one.workload, one.config, cost=Cost(10, 0.25), tree=tree)
    assert next(event.node for event in log.of(RadixEvicted)) == 1
    assert next(event.node for event in one.run().of(RadixEvicted)) == 2


def test_cases_come_in_no_kind_order() -> None:
    # A kind order has the nodes sorted by id, or a child always behind its parent.
    assert sum(list(one.order) == sorted(one.order) for one in cases()) < len(cases()) / 3
