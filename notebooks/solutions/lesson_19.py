"""Lesson 19: how many blocks to fetch from another replica."""

from collections.abc import Callable


def fetch(  # noqa: PLR0917
    tokens: int,
    here: int,
    there: int,
    block_size: int,
    move_ms: Callable[[int], float],
    compute_ms: Callable[[int], float],
) -> int:
    """Try every number of blocks. The last token is never among them: it has to be computed."""
    most = min(there, (tokens - 1) // block_size) - here

    def total_ms(blocks: int) -> float:
        move = move_ms(blocks) if blocks else 0
        return move + compute_ms(tokens - (here + blocks) * block_size)

    return min(range(max(most, 0) + 1), key=total_ms)
