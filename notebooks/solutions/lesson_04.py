"""Lesson 04: which waiting requests join the batch in this step?"""

from collections.abc import Sequence


def admit(
    waiting: Sequence[tuple[int, int, int]],
    seats: int,
    budget_left: int,
    free_blocks: int,
    block_size: int,
) -> list[int]:
    """Go down the queue and stop at the first request that does not fit."""
    admitted = []
    for id_, tokens, samples in waiting:
        chunk = min(tokens, budget_left)
        blocks = -(
            -tokens // block_size
        )  # memory for all of them, although a chunk is computed now
        if samples > seats or chunk == 0 or blocks > free_blocks:
            break
        seats -= samples
        budget_left -= chunk
        free_blocks -= blocks
        admitted.append(id_)
    return admitted
