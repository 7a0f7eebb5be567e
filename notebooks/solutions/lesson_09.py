"""Lesson 09: memory is full and a request needs a block. Which request is preempted?"""

from collections.abc import Sequence


def victim(running: Sequence[tuple[int, int, int, int, int]], needed_by: int) -> int:  # noqa: ARG001
    """Return the least urgent request; among equals the last to arrive."""
    id_, _, _, _, _ = max(running, key=lambda row: (row[1], row[2]))
    return id_
