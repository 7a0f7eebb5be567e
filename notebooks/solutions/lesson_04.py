"""Lesson 04: who of the queue joins the batch in this step?"""

from collections.abc import Sequence


def admit(
    waiting: Sequence[tuple[int, int, int]],
    places: int,
    budget_left: int,
    free_blocks: int,
    block_size: int,
) -> list[int]:
    """Go down the queue while there is room, and stop at the first who does not fit."""
    admitted = []
    for id_, tokens, slots in waiting:
        chunk = min(tokens, budget_left)
        blocks = -(-chunk // block_size)
        if slots > places or chunk == 0 or blocks > free_blocks:
            break
        places -= slots
        budget_left -= chunk
        free_blocks -= blocks
        admitted.append(id_)
    return admitted
