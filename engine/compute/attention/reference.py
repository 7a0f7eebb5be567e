"""Paged attention, straight from its definition: row by row, with no optimizations.

`paged_attention.py` computes the same result. `Engine(..., attention=ReferenceAttention)` runs this.
"""

import torch
from torch import Tensor

from engine.compute.attention.kv_cache import KVCache
from engine.compute.batch import Batch
from engine.compute.model.config import ModelConfig


class ReferenceAttention:
    """One step's attention, called once per layer; see `PagedAttention` for the shapes."""

    def __init__(self, config: ModelConfig, kv_cache: KVCache, batch: Batch) -> None:
        self.config, self.kv_cache, self.batch = config, kv_cache, batch

    def __call__(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """Write the new keys and values, then attend for each row: [tokens, heads * head_dim]."""
        cache = self.kv_cache.by_slot[layer]
        cache[self.batch.slot_mapping] = keys_values
        outputs: list[Tensor] = []
        for group in self.batch.groups:
            rows = queries[group.tokens].view(-1, group.query_len, *queries.shape[1:])
            for query, seq_len, block_table in zip(
                rows, group.seq_lens, group.block_tables, strict=True
            ):
                outputs.append(self.attend(query, cache, seq_len, torch.tensor(block_table)))
        return torch.cat(outputs)

    def attend(self, query: Tensor, cache: Tensor, seq_len: int, block_table: Tensor) -> Tensor:
        """Attend from a row's last tokens, `query` [query_len, heads, head_dim], to its context."""
        block_size, kv_heads = self.kv_cache.block_size, self.config.num_kv_heads
        keys_at = torch.arange(seq_len)
        slots = block_table[keys_at // block_size] * block_size + keys_at % block_size
        keys, values = cache[slots].chunk(2, dim=1)  # each [seq_len, kv_heads, head_dim]
        group_size = self.config.num_heads // kv_heads  # query heads that share a KV head
        keys, values = (kv.repeat_interleave(group_size, dim=1) for kv in (keys, values))
        scores = torch.einsum("qhd,khd->hqk", query, keys) / self.config.head_dim**0.5
        distance = keys_at[-len(query) :, None] - keys_at  # how far back each key is; < 0: ahead
        visible = (distance >= 0) & (distance < (self.config.window or seq_len))
        probs = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
        return torch.einsum("hqk,khd->qhd", probs, values).flatten(1)
