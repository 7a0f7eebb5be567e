"""Paged attention, straight from its definition: row by row, with no optimizations.

`paged_attention.py` computes the same result. `Engine(..., attention=ReferenceAttention)` runs this.
"""

import torch
from torch import Tensor

from engine.core.compute.batch import Batch
from engine.core.compute.kv_cache import KVCache
from engine.core.compute.model import ModelConfig


class ReferenceAttention:
    """One step's attention, called once per layer; see `PagedAttention` for the shapes."""

    def __init__(self, config: ModelConfig, kv_cache: KVCache, batch: Batch) -> None:
        self.config, self.kv_cache, self.batch = config, kv_cache, batch

    def __call__(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """Write the new keys and values, then attend for each row: [tokens, heads * head_dim]."""
        cache, window = self.kv_cache.by_slot[layer], self.config.windows[layer]
        slots = self.kv_cache.slots_in(layer, self.batch.slot_mapping)
        cache[slots] = keys_values.to(cache.dtype)
        outputs: list[Tensor] = []
        for group in self.batch.groups:
            rows = queries[group.tokens].view(-1, group.query_len, *queries.shape[1:])
            for query, seq_len, block_table in zip(
                rows, group.seq_lens, group.block_tables, strict=True
            ):
                table = torch.tensor(block_table, device=cache.device)
                table = self.kv_cache.blocks_in(layer, table)
                outputs.append(self.attend(query, cache, seq_len, table, window))
        return torch.cat(outputs)

    def attend(
        self, query: Tensor, cache: Tensor, seq_len: int, block_table: Tensor, window: int | None
    ) -> Tensor:
        """Attend from a row's last tokens, `query` [query_len, heads, head_dim], to its context."""
        block_size, kv_heads = self.kv_cache.block_size, self.config.num_kv_heads
        window = window or seq_len
        queries_at = torch.arange(seq_len - len(query), seq_len, device=cache.device)
        # Before the window of the first query, a sliding layer may have no KV.
        first = max(seq_len - len(query) - window + 1, 0)
        keys_at = torch.arange(first, seq_len, device=cache.device)
        slots = block_table[keys_at // block_size] * block_size + keys_at % block_size
        keys, values = cache[slots].to(query.dtype).chunk(2, dim=1)  # [keys, kv_heads, head_dim]
        group_size = self.config.num_heads // kv_heads  # query heads that share a KV head
        keys, values = (kv.repeat_interleave(group_size, dim=1) for kv in (keys, values))
        scores = torch.einsum("qhd,khd->hqk", query, keys) / self.config.head_dim**0.5
        distance = queries_at[:, None] - keys_at  # how far back each key is; < 0: ahead
        visible = (distance >= 0) & (distance < window)
        probs = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
        return torch.einsum("hqk,khd->qhd", probs, values).flatten(1)
