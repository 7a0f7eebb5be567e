"""When is it cheaper to move KV blocks from another replica than to compute their tokens?

    move     fixed_ms + block_ms * blocks
    compute  token_ms * tokens

Both costs are straight lines, so only two answers can be best: fetch nothing, or fetch every block that
the other replica has and this one lacks. `TransferCosts` has the prices; a gateway learns them from the
moves and the prompts of its requests (`server/gateway/prices.py`).

Every answer obeys three rules:

- A block that this replica already has is never fetched.
- Fetched blocks continue the prefix that this replica has. Attention needs every token before a block,
  so a block behind a hole would be useless.
- The last token is always computed, because its logits give the first output token, and a KV block has
  no logits. This costs the same either way, so the rule leaves it out.

Source: Splitwise (arXiv:2311.18677) and DistServe (arXiv:2401.09670) compute prompts on separate
machines and move the KV. In Mooncake (arXiv:2407.00079, Algorithm 1), a replica fetches a prefix if
another replica's cached prefix is longer by a factor, `kvcache_balancing_threshold`; the transfer's
time counts towards the predicted TTFT.

Differs from vLLM, where a KV connector (`vllm/distributed/kv_transfer/kv_connector/v1/base.py`,
`get_num_new_matched_tokens`) reports the tokens that it can load, and the scheduler always loads them.
Differs from Dynamo and TensorRT-LLM, which prefill on another worker if more than a fixed number of
tokens, `max_local_prefill_length`, are not cached locally.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransferCosts:
    """The prices of moving and of computing, in milliseconds.

    fixed_ms  the price of a move, however many blocks it has
    block_ms  the additional price of each block
    token_ms  the price of computing the KV of one token

    Raises ValueError for a negative price.
    """

    fixed_ms: float
    block_ms: float
    token_ms: float

    def __post_init__(self) -> None:
        for name in ("fixed_ms", "block_ms", "token_ms"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")

    def move_ms(self, blocks: int) -> float:
        """Return the time to move `blocks` blocks; 0 for none."""
        return self.fixed_ms + self.block_ms * blocks if blocks else 0.0

    def compute_ms(self, tokens: int) -> float:
        """Return the time to compute `tokens` tokens."""
        return self.token_ms * tokens


def movable_blocks(num_tokens: int, here: int, there: int, block_size: int) -> int:
    """Return how many blocks of a prompt another replica could send.

    num_tokens   the prompt's length
    here         the number of leading blocks that this replica has cached
    there        the number of leading blocks that the other replica has cached
    """
    needed = max(num_tokens - 1, 0) // block_size  # the last token is always computed
    return max(min(there, needed) - here, 0)


def is_cheaper_to_move(blocks: int, block_size: int, costs: TransferCosts) -> bool:
    """Return whether moving `blocks` blocks takes less time than computing their tokens."""
    return costs.move_ms(blocks) < costs.compute_ms(blocks * block_size)


def blocks_to_move(
    num_tokens: int, here: int, there: int, block_size: int, costs: TransferCosts
) -> int:
    """Return how many blocks to fetch: those after the first `here` of the prompt, or 0 for none.

    The arguments are those of `movable_blocks`.
    """
    blocks = movable_blocks(num_tokens, here, there, block_size)
    return blocks if is_cheaper_to_move(blocks, block_size, costs) else 0


def least_blocks_to_move(block_size: int, costs: TransferCosts) -> int | None:
    """Return the smallest number of blocks that is cheaper to move than to compute, or None."""
    gain = costs.compute_ms(block_size) - costs.block_ms  # saved by each block that is moved
    return int(costs.fixed_ms / gain) + 1 if gain > 0 else None
