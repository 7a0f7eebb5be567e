"""KV memory: keys and values of every computed token, in pages.

A page is a KV block: `block_size` slots, one per token. Keys and values of a token lie side by side,
so that writing a token is one operation, and a block is one run of memory, so that reading it is one
copy:

    pages [layers, num_blocks, block_size, 2 (keys, values), kv_heads, head_dim]

vLLM lays pages out as `[2, num_blocks, block_size, kv_heads, head_dim]` per layer, which suits its
GPU kernels (`vllm/v1/attention/backends/flash_attn.py`).
"""

from collections.abc import Sequence

import torch

from engine.compute.model.config import ModelConfig
from engine.config import ConfigError


class KVCache:
    """The pages of all layers. Contents are undefined until written.

    slots[l]   layer l as `[num_blocks * block_size, 2 * kv_heads, head_dim]`, for writing tokens
    blocks[l]  layer l as `[num_blocks, block_size * 2 * kv_heads * head_dim]`, for reading blocks
    """

    def __init__(
        self, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype
    ) -> None:
        self.block_size = block_size
        shape = (
            config.num_layers, num_blocks, block_size, 2, config.num_kv_heads, config.head_dim
        )  # fmt: skip
        try:
            self.pages = torch.empty(shape, dtype=dtype)
        except (RuntimeError, TypeError) as error:  # TypeError: a number that torch cannot hold
            raise ConfigError(
                f"max_kv_tokens: {num_blocks} KV blocks of {block_size} tokens do not fit into "
                f"memory, lower it ({error})"
            ) from error
        self.slots = [
            layer.view(-1, 2 * config.num_kv_heads, config.head_dim) for layer in self.pages
        ]
        self.blocks = [layer.view(num_blocks, -1) for layer in self.pages]

    def copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, (source, destination), in all layers, one after the other."""
        for source, destination in copies:
            self.pages[:, destination] = self.pages[:, source]
