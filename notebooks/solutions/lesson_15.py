"""Lesson 15: which tokens may come next, so that the output keeps its shape?"""

from collections.abc import Collection, Mapping, Sequence


def mask(
    fsm: tuple[Mapping[tuple[int, str], int], Collection[int]],
    state: int,
    vocab: Sequence[str],
    eos: int,
) -> list[bool]:
    """Walk each token, character by character, from `state`."""
    moves, accepting = fsm
    allowed = []
    for token in vocab:
        after: int | None = state if token else None  # a token without text goes nowhere
        for character in token:
            after = None if after is None else moves.get((after, character))
        allowed.append(after is not None)
    allowed[eos] = state in accepting
    if not any(allowed):
        raise ValueError(f"no token fits in state {state}")
    return allowed
