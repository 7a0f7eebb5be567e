"""Lesson 07's exercise: wrong choices are refused helpfully, right ones run in the engine."""

import heapq

import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_07 import YourEviction, attempt, cases
from engine import Cost, simulate
from engine.cache.radix_tree import RadixTree
from engine.events.vocabulary import RadixEvicted
from engine.simulation.scenarios import scenario
from solutions.lesson_07 import choose_leaf as solution


def verdict(choose_leaf) -> Verdict:
    return judge(choose_leaf, cases(), attempt)


def least_recent(nodes):
    return min(nodes, key=lambda node: node[3])[0] if nodes else None


# Wrong


def the_oldest_of_all(nodes):
    return least_recent([node for node in nodes if node[0] and not node[2]])


def whoever_reads_it(nodes):
    return least_recent([node for node in nodes if node[0] and not node[1]])


def takes_the_id_for_its_age(nodes):
    return min(
        (id_ for id_, children, lock, _ in nodes if id_ and not children + lock), default=None
    )


def the_root_as_well(nodes):
    return least_recent([node for node in nodes if not node[1] and not node[2]])


def the_most_recent(nodes):
    leaves = [node for node in nodes if node[0] and not node[1] and not node[2]]
    return max(leaves, key=lambda node: node[3])[0] if leaves else None


def the_first_that_may(nodes):
    return next((node[0] for node in nodes if node[0] and not node[1] and not node[2]), None)


def gives_up_early(nodes):
    return None if any(node[2] for node in nodes) else solution(nodes)


def raises_where_nothing_may(nodes):
    leaves = [node for node in nodes if node[0] and not node[1] and not node[2]]
    return min(leaves, key=lambda node: node[3])[0]


def returns_the_node(nodes):
    id_ = solution(nodes)
    return next((node for node in nodes if node[0] == id_), None)


def throws_out(nodes):
    id_ = solution(nodes)
    nodes.clear()
    return id_


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            the_oldest_of_all,
            [
                "A tree, in the order in which you get it: node 1 below the root, last used at 3; "
                "node 2 below node 1, last used at 3.",
                "You chose node 1.",
                "only leaves go",
                "Node 1 has a node below it. What leads there would lose its beginning.",
            ],
        ),
        (
            whoever_reads_it,
            ["what somebody reads stays", "1 request is reading node 1.", "read by 1 request"],
        ),
        (
            takes_the_id_for_its_age,
            [
                "node 2 below the root, last used at 3; node 1 below the root, last used at 4",
                "Node 1 was last used at 4. Was no such leaf left alone for longer?",
            ],
        ),
        (the_root_as_well, ["A tree with nothing but its root.", "the root stays"]),
        (the_most_recent, ["the least recently used goes first"]),
        (the_first_that_may, ["the least recently used goes first"]),
        (gives_up_early, ["You returned None", "one goes", "does anybody read it?"]),
        (raises_where_nothing_may, ["raised ValueError", "it has an answer for every case"]),
        (returns_the_node, ["the answer is the id of a node, or None"]),
        (throws_out, ["You changed nodes: it is [] now."]),
    ],
)
def test_a_wrong_choice_is_refused_with_the_case_and_the_promise(wrong, said: list[str]) -> None:
    found = verdict(wrong)
    assert not found.passed
    message = " ".join(str(found).split())
    for words in said:
        assert words in message


# Right


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


@pytest.mark.parametrize("right", [solution, sorts, takes_from_a_heap, scans_once])
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


def test_the_engine_asks_the_learners_part_and_not_its_own() -> None:
    """The leaf with the smallest id is a rule that no check accepts: it shows whose word counts."""
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
def test_an_untouched_stub_is_not_written_yet_and_the_engine_runs_its_own(
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
