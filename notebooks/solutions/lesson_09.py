"""Lesson 09: memory is full, somebody needs a block. Who gives way?"""

from collections.abc import Sequence


def victim(running: Sequence[tuple[int, int, int, int, int]], needed_by: int) -> int:  # noqa: ARG001
    """The least urgent; of those the last to arrive."""
    id_, _, _, _, _ = max(running, key=lambda row: (row[1], row[2]))
    return id_
