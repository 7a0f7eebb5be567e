"""KV memory: the keys and values of every computed token, stored in blocks.

A block has `block_size` slots, one per token. A token's keys and values are adjacent, so writing a
token is one operation. Each block is contiguous, so reading a block is one copy:

    [layers, num_blocks, block_size, 2 (keys, values), kv_heads, head_dim]

Differs from vLLM (`vllm/v1/attention/backends/flash_attn.py`):

- One tensor holds all layers. vLLM allocates one per layer.
- A token's keys and values are adjacent. vLLM stores all keys before all values
  (`[2, num_blocks, block_size, kv_heads, head_dim]`), which suits its GPU kernels.
"""

from collections.abc import Sequence

import torch

from engine.compute.model.config import ModelConfig
from engine.config import ConfigError


class KVCache:
    """The KV memory of all layers. A slot's contents are undefined until it is written.

    tensor       the whole memory, in the layout above
    by_slot[l]   layer l as `[num_blocks * block_size, 2 * kv_heads, head_dim]`, for writing tokens
    by_block[l]  layer l as `[num_blocks, block_size * 2 * kv_heads * head_dim]`, for reading blocks
    """

    def __init__(
        self, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype
    ) -> None:
        self.block_size = block_size
        shape = (
            config.num_layers, num_blocks, block_size, 2, config.num_kv_heads, config.head_dim
        )  # fmt: skip
        try:
            self.tensor = torch.empty(shape, dtype=dtype)
        except (RuntimeError, TypeError) as error:  # TypeError: a size too large for torch
            raise ConfigError(
                f"max_kv_tokens: {num_blocks} KV blocks of {block_size} tokens do not fit in "
                f"memory; lower it ({error})"
            ) from error
        self.by_slot = [
            layer.view(-1, 2 * config.num_kv_heads, config.head_dim) for layer in self.tensor
        ]
        self.by_block = [layer.view(num_blocks, -1) for layer in self.tensor]

    def copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, given as (source, destination), in every layer and in this order."""
        for source, destination in copies:
            self.tensor[:, destination] = self.tensor[:, source]
