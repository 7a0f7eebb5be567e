"""The rule of a move: it never costs more than any other choice, and it keeps three limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cluster.transfer import (
    TransferCosts,
    blocks_to_move,
    is_cheaper_to_move,
    least_blocks_to_move,
)


def total_ms(
    blocks: int, num_tokens: int, here: int, block_size: int, costs: TransferCosts
) -> float:
    """What fetching `blocks` blocks and computing the rest costs."""
    left = max(num_tokens - (here + blocks) * block_size, 0)
    move = costs.fixed_ms + costs.block_ms * blocks if blocks else 0.0
    return move + left * costs.token_ms


@given(
    st.integers(1, 400),
    st.integers(0, 30),
    st.integers(0, 30),
    st.sampled_from([1, 4, 16]),
    st.builds(TransferCosts, *[st.sampled_from([0.0, 0.25, 1.0, 4.0, 64.0])] * 3),
)
def test_no_allowed_number_of_blocks_costs_less(
    num_tokens: int, here: int, there: int, block_size: int, costs: TransferCosts
) -> None:
    here = min(here, (num_tokens - 1) // block_size)
    moved = blocks_to_move(num_tokens, here, there, block_size, costs)
    # Blocks that are there, not here, and leave a token to compute.
    most = max(min(there, (num_tokens - 1) // block_size) - here, 0)
    assert 0 <= moved <= most
    everything = [total_ms(n, num_tokens, here, block_size, costs) for n in range(most + 1)]
    assert everything[moved] == min(everything)


def test_equal_costs_compute() -> None:
    assert blocks_to_move(17, 0, 1, 16, TransferCosts(1, 0, 1 / 16)) == 0


@pytest.mark.parametrize("field", ["fixed_ms", "block_ms", "token_ms"])
@pytest.mark.parametrize("price", [-1.0, float("nan")])
def test_prices_are_at_least_zero(field: str, price: float) -> None:
    with pytest.raises(ValueError, match=field):
        TransferCosts(**{"fixed_ms": 1, "block_ms": 1, "token_ms": 1} | {field: price})


@given(
    st.sampled_from([1, 4, 16]),
    st.builds(TransferCosts, *[st.sampled_from([0.0, 0.25, 1.0, 4.0, 64.0])] * 3),
)
def test_the_least_blocks_are_the_fewest_that_are_cheaper_to_move(
    block_size: int, costs: TransferCosts
) -> None:
    cheaper = [n for n in range(1, 1000) if is_cheaper_to_move(n, block_size, costs)]
    assert least_blocks_to_move(block_size, costs) == (cheaper[0] if cheaper else None)
