"""Lesson 08: which leaf of the radix tree is evicted next?"""

from collections.abc import Sequence


def choose_leaf(nodes: Sequence[tuple[int, int, int, int]]) -> int | None:
    """Return the unlocked leaf with the smallest time of last use."""
    may_go = [(last, id_) for id_, children, lock, last in nodes if id_ and not children + lock]
    return min(may_go)[1] if may_go else None
