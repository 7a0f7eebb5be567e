"""Lesson 07: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.broken import CommonPromise
from checks.lesson_07 import Promise
from solutions.lesson_07 import choose_leaf as solution


def least_recent(nodes):
    return min(nodes, key=lambda node: node[3])[0] if nodes else None


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


def the_oldest_if_it_may(nodes):
    id_, children, lock, _ = min(nodes, key=lambda node: node[3])
    return id_ if id_ and not children and not lock else None


def the_root_for_none(nodes):
    return solution(nodes) or 0


def a_list_of_one(nodes):
    return [solution(nodes)]


WRONG = [
    (the_oldest_if_it_may, Promise.CHOOSES_ONE, [1]),
    (the_root_for_none, Promise.ROOT_STAYS, [0]),
    (a_list_of_one, Promise.IS_ID, []),
    (the_oldest_of_all, Promise.ONLY_LEAVES, [1, 3, 2]),
    (whoever_reads_it, Promise.LOCKED_STAYS, [1]),
    (takes_the_id_for_its_age, Promise.LRU, [2, 3, 1, 4]),
    (the_root_as_well, Promise.ROOT_STAYS, []),
    (the_most_recent, Promise.LRU, []),
    (the_first_that_may, Promise.LRU, []),
    (gives_up_early, Promise.CHOOSES_ONE, []),
    (raises_where_nothing_may, CommonPromise.ANSWERS, ["ValueError"]),
    (returns_the_node, Promise.IS_ID, []),
    (throws_out, CommonPromise.UNCHANGED, []),
]
