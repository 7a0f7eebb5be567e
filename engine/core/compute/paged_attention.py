"""Attention that reads keys and values from KV blocks.

Each layer writes the new tokens' keys and values into their slots. Then each group of rows gathers
its context block by block, following its block tables, and attends to it. `ReferenceAttention`, at the
end of this file, does the same in a few lines, one row at a time.

A context may end in the middle of a block. The slots past its end hold garbage, possibly NaN, because
they were never written or belonged to a freed request. If all rows of a group end at the same offset,
these slots are sliced off. Otherwise a mask hides them and their gathered copies are set to zero,
because with a mask alone, 0 * NaN would still be NaN.

Differs from vLLM (PagedAttention, arXiv:2309.06180):

- The context is gathered into a contiguous buffer. vLLM's GPU kernels read the blocks in place.
- Rows are grouped by query length and context length, with one call per group. vLLM's kernels
  handle rows of different lengths in one call.

To use another kernel, pass a class with the interface of `PagedAttention` to the engine.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from engine.core.compute.kv_cache import KVCache
from engine.core.compute.model import Batch, Group, ModelConfig

Kernel = Callable[..., Tensor]  # with the interface of `F.scaled_dot_product_attention`


class PagedAttention:
    """One step's attention, created once per step and called once per layer."""

    def __init__(self, config: ModelConfig, kv_cache: KVCache, batch: Batch) -> None:
        self._kv_cache = kv_cache
        # Layers with the same window share their slots and groups.
        self._windows = config.windows
        self._slots: dict[int | None, Tensor] = {}
        self._groups: dict[int | None, list[PagedGroup]] = {}
        for layer, window in enumerate(config.windows):
            if window not in self._slots:
                self._slots[window] = batch.slot_mapping
                if kv_cache.has_window_pages:
                    self._slots[window] = kv_cache.slots_in(layer, batch.slot_mapping)
                self._groups[window] = [
                    PagedGroup(config, kv_cache, group, layer) for group in batch.groups
                ]

    def __call__(
        self, layer: int, queries: Tensor, keys_values: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        """Write the new keys and values, then attend from each token to its context.

        queries      [tokens, heads, head_dim]
        keys_values  [tokens, 2 * kv_heads, head_dim], all key heads, then all value heads; None if
                     the layer reads the KV of an earlier one
        sinks        float32 [heads] or None; see `attend_with_sinks`
        returns      [tokens, heads * head_dim]
        """
        window, cache = self._windows[layer], self._kv_cache
        if keys_values is not None:
            codec, dtype = cache.codec, cache.tensor.dtype
            stored = keys_values.to(dtype) if codec is None else codec.encode(keys_values)
            cache.by_slot[layer].index_copy_(0, self._slots[window], stored)
        kernel: Kernel = F.scaled_dot_product_attention
        if sinks is not None:
            kernel = partial(attend_with_sinks, sinks)
        outputs = [
            group.attend(layer, queries[group.tokens], None, kernel)
            for group in self._groups[window]
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


class PagedGroup:
    """Rows with the same number of tokens: one gather and one attention call per layer."""

    def __init__(self, config: ModelConfig, kv_cache: KVCache, group: Group, layer: int) -> None:
        self.tokens = group.tokens
        self._kv_cache = kv_cache
        rows, size = len(group.seq_lens), kv_cache.block_size
        kv_heads, head_dim = kv_cache.shapes[layer]
        self._shape = (rows, group.query_len, kv_heads, config.num_heads // kv_heads, head_dim)

        # Read whole blocks, starting at the window of the row's first new token. Without a window,
        # read them all.
        window = config.windows[layer] or group.seq_lens[-1]
        low = size  # the first slot that any row reads in its first block
        first_positions, ends = list[int](), list[int]()  # ends: slots from the first block on
        tables: list[list[int]] = []
        for seq_len, table in zip(group.seq_lens, group.block_tables, strict=True):
            start = max(seq_len - group.query_len - window + 1, 0)
            first = start - start % size
            low = min(low, start % size)
            first_positions.append(first)
            ends.append(seq_len - first)
            tables.append(table[first // size : -(-seq_len // size)])
        # Pad shorter tables with a full block, because a full block holds no garbage.
        widest = max(tables, key=len)
        block_index: list[int] = []
        for table in tables:
            block_index += table + widest[:1] * (len(widest) - len(table))
        device = kv_cache.tensor.device
        self._block_index = torch.tensor(block_index, device=device)
        if kv_cache.has_window_pages:
            self._block_index = kv_cache.blocks_in(layer, self._block_index)

        # All layers share one buffer, so even a long context allocates only once per step.
        num_slots = len(widest) * size
        stored = kv_cache.by_slot[layer].shape[-1]
        buffer = kv_cache.tensor.new_empty(rows, num_slots, kv_cache.parts, kv_heads, stored)
        self._blocks = buffer.view(len(block_index), -1)
        self._slots = buffer.view(rows * num_slots, -1)
        high = max(ends)
        # On a CPU without half precision, the gathered blocks are converted to float32.
        # A codec's are decoded.
        dtype = kv_cache.activation_dtype
        self._buffer, self._wide = buffer, buffer
        if dtype != buffer.dtype:
            self._wide = buffer.new_empty((*buffer.shape[:-1], head_dim), dtype=dtype)
        parts = self._wide[:, low:high].unbind(dim=2)
        self._keys, self._values = parts[0].transpose(1, 2), parts[-1].transpose(1, 2)

        self._mask: Tensor | None = None
        self._garbage: Tensor | None = None
        # A whole prompt attends only to itself, and the kernel has a fast path for this shape.
        self._causal = 1 < group.query_len == group.seq_lens[-1] <= window
        ragged = group.seq_lens[0] != group.seq_lens[-1]
        if ragged or (group.query_len > 1 and not self._causal):
            positions = np.array(first_positions)[:, None] + np.arange(low, high)
            mask = _mask(positions, np.array(group.seq_lens)[:, None], group.query_len, window)
            # Repeat for the query heads that share a KV head: [rows, 1, query_len * sharing, keys].
            mask = mask.repeat(self._shape[3], axis=1)[:, None]
            self._mask = torch.from_numpy(mask).to(device, dtype)
        if ragged:
            garbage: list[int] = []
            for i, (end, table) in enumerate(zip(ends, tables, strict=True)):
                garbage += range(i * num_slots + end, i * num_slots + len(table) * size)
            self._garbage = torch.tensor(garbage, dtype=torch.int64, device=device)

    def attend(self, layer: int, queries: Tensor, _new: Tensor | None, kernel: Kernel) -> Tensor:
        """`queries` [rows * query_len, heads, head_dim] -> [rows * query_len, heads * head_dim].

        The new keys and values, the third argument, are in the blocks already.
        """
        blocks = self._kv_cache.by_block[layer]
        torch.index_select(blocks, 0, self._block_index, out=self._blocks)
        if self._garbage is not None:
            self._slots.index_fill_(0, self._garbage, 0.0)
        if self._kv_cache.codec is not None:
            self._kv_cache.codec.decode(self._buffer, self._wide)
        elif self._wide is not self._buffer:
            self._wide.copy_(self._buffer)
        rows, query_len, kv_heads, _, head_dim = self._shape
        if self._causal:
            own = queries.view(rows, query_len, -1, head_dim).transpose(1, 2)
            output = kernel(own, self._keys, self._values, is_causal=True, enable_gqa=True)
            return output.transpose(1, 2).reshape(rows * query_len, -1)
        # Stack the query heads that share a KV head as additional tokens of that head. The kernel
        # then reads the keys once for all of them; `enable_gqa` reads them once per query head.
        stacked = queries.view(self._shape).transpose(1, 2).reshape(rows, kv_heads, -1, head_dim)
        output = kernel(stacked, self._keys, self._values, attn_mask=self._mask)
        if query_len == 1:
            return output.view(rows, -1)
        unstacked = output.view(rows, kv_heads, query_len, -1, head_dim).transpose(1, 2)
        return unstacked.reshape(rows * query_len, -1)


def attend_with_sinks(
    sinks: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
) -> Tensor:
    """`F.scaled_dot_product_attention` in which each head also attends to a sink.

    sinks  float32 [heads], the sinks' scores

    A sink is a key without a value. It takes a share of the softmax, so that a head need not attend to
    any token (gpt-oss, arXiv:2508.10925). The sum of a query's exponentials becomes e^lse + e^sink in
    place of e^lse, so the output shrinks by the factor e^lse / (e^lse + e^sink) = sigmoid(lse - sink).
    torch's kernel for CPUs returns lse, the log of the sum, beside the output. On other devices the
    scores are computed once more, which takes memory for all of them.

    `queries` are [rows, heads, query_len, head_dim], or [rows, kv_heads, query_len * sharing, head_dim]
    with the heads that share keys as additional queries.
    """
    output: Tensor
    if queries.device.type == "cpu":
        output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            queries, keys, values, is_causal=is_causal, attn_mask=attn_mask
        )
    else:
        output = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask, is_causal=is_causal, enable_gqa=enable_gqa
        )
        keys = keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1)
        scores = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5
        if is_causal:
            scores = scores + torch.full_like(scores, -torch.inf).triu(1)
        lse = (scores if attn_mask is None else scores + attn_mask).float().logsumexp(dim=-1)
    own = sinks.view(lse.shape[1], -1)  # [heads, 1] or [kv_heads, sharing]
    own = own.repeat(1, lse.shape[2] // own.shape[1])
    return output.mul_(torch.sigmoid(lse - own).unsqueeze(-1))


def _mask(
    positions: NDArray[np.int64], seq_lens: NDArray[np.int64], query_len: int, window: int
) -> NDArray[np.float32]:
    """Return the mask to add to the scores: [rows, query_len, keys], 0 if visible, else -inf.

    positions  [rows, keys] each key's position in its text
    seq_lens   [rows, 1] context lengths

    A token sees itself and the tokens before it, within its window. The last token of a chunk sees
    the whole context, so the triangle is aligned to the bottom right. `is_causal=True` aligns it to
    the top left, which is correct only for a prompt computed from its first token.
    """
    queries = (seq_lens - query_len + np.arange(query_len))[:, :, None]
    keys = positions[:, None]
    visible = (keys <= queries) & (keys > queries - window)
    return np.where(visible, np.float32(0), np.float32(-np.inf))


class ReferenceAttention:
    """The same as `PagedAttention`, straight from its definition: row by row, without optimizations.

    `Engine(..., attention=ReferenceAttention)` runs it.
    """

    def __init__(self, config: ModelConfig, kv_cache: KVCache, batch: Batch) -> None:
        self.config, self.kv_cache, self.batch = config, kv_cache, batch

    def __call__(
        self, layer: int, queries: Tensor, keys_values: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        """Write the new keys and values, then attend for each row: [tokens, heads * head_dim]."""
        cache, window = self.kv_cache.by_slot[layer], self.config.windows[layer]
        slots = self.kv_cache.slots_in(layer, self.batch.slot_mapping)
        if keys_values is not None:
            codec = self.kv_cache.codec
            cache[slots] = (
                keys_values.to(cache.dtype) if codec is None else codec.encode(keys_values)
            )
        outputs: list[Tensor] = []
        for group in self.batch.groups:
            rows = queries[group.tokens].view(-1, group.query_len, *queries.shape[1:])
            for query, seq_len, block_table in zip(
                rows, group.seq_lens, group.block_tables, strict=True
            ):
                table = torch.tensor(block_table, device=cache.device)
                table = self.kv_cache.blocks_in(layer, table)
                outputs.append(self.attend(query, layer, seq_len, table, window, sinks=sinks))
        return torch.cat(outputs)

    def attend(
        self,
        query: Tensor,
        layer: int,
        seq_len: int,
        block_table: Tensor,
        window: int | None,
        *,
        sinks: Tensor | None,
    ) -> Tensor:
        """Attend from a row's last tokens, `query` [query_len, heads, head_dim], to its context."""
        cache, codec = self.kv_cache.by_slot[layer], self.kv_cache.codec
        block_size, (kv_heads, size) = self.kv_cache.block_size, self.kv_cache.shapes[layer]
        window = window or seq_len
        queries_at = torch.arange(seq_len - len(query), seq_len, device=cache.device)
        # Before the window of the first query, a sliding layer may have no KV.
        first = max(seq_len - len(query) - window + 1, 0)
        keys_at = torch.arange(first, seq_len, device=cache.device)
        slots = block_table[keys_at // block_size] * block_size + keys_at % block_size
        stored = cache[slots]
        if codec is not None:
            stored = codec.decode(stored, query.new_empty(*stored.shape[:2], size))
        parts = torch.split(
            stored.to(query.dtype), kv_heads, dim=1
        )  # each [keys, kv_heads, head_dim]
        group_size = self.config.num_heads // kv_heads  # query heads that share a KV head
        keys, values = (one.repeat_interleave(group_size, dim=1) for one in (parts[0], parts[-1]))
        scores = torch.einsum("qhd,khd->hqk", query, keys) / query.shape[-1] ** 0.5
        distance = queries_at[:, None] - keys_at  # how far back each key is; < 0: ahead
        visible = (distance >= 0) & (distance < window)
        scores = scores.masked_fill(~visible, -torch.inf)
        if sinks is not None:  # another key for each head, whose value is zero
            scores = torch.cat((scores, sinks[:, None, None].expand(-1, len(query), 1)), dim=-1)
        probs = scores.softmax(dim=-1)[..., : len(keys)].to(query.dtype)
        return torch.einsum("hqk,khd->qhd", probs, values).flatten(1)
