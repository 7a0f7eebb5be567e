"""Lesson 07: which leaf of the radix tree is forgotten next?"""

from collections.abc import Sequence


def choose_leaf(nodes: Sequence[tuple[int, int, int, int]]) -> int | None:
    """Of those that may go, the one with the smallest time of last use."""
    may_go = [(last, id_) for id_, children, lock, last in nodes if id_ and not children + lock]
    return min(may_go)[1] if may_go else None
