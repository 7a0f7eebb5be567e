"""Attention that reads keys and values from pages.

Each layer writes the new tokens' keys and values into their slots, then every group of rows reads
its context (with a sliding window, the end of it) back through its block tables. Reading goes slot by
slot, through indexes that are computed once per step, for three reasons: a context that begins or
ends inside a block never touches the other slots of that block; rows of different length need no
clean-up; and the gathered keys of a head lie next to each other, which the attention kernel likes
best.

A GPU engine reads pages inside the kernel instead of gathering them: vLLM's PagedAttention,
arXiv:2309.06180. A backend for such a kernel is a class like this one: made once per step from pages
and batch, called once per layer.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.compute.batch import Batch, Group
from engine.compute.kv_pages import KVPages
from engine.compute.model_config import ModelConfig


class PagedAttention:
    """One step's attention, called once per layer."""

    def __init__(self, config: ModelConfig, pages: KVPages, batch: Batch) -> None:
        self._pages = pages
        self._slots = batch.slots
        self._groups = [_GroupAttention(config, pages, group) for group in batch.groups]

    def __call__(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """What each token reads from its context.

        queries      [tokens, heads, head_dim]
        keys_values  [tokens, 2 * kv_heads, head_dim], all heads of keys, then all of values
        returns      [tokens, heads * head_dim]
        """
        self._pages.slots[layer].index_copy_(0, self._slots, keys_values)
        heads = self._pages.heads[layer]
        outputs = [group.attend(queries[group.tokens], heads) for group in self._groups]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


class _GroupAttention:
    """Rows of equally many tokens: one gather and one attention call per layer."""

    def __init__(self, config: ModelConfig, pages: KVPages, group: Group) -> None:
        self.tokens = group.tokens
        rows, kv_heads = len(group.contexts), config.num_kv_heads
        self._shape = (rows, group.count, kv_heads, config.num_heads // kv_heads, config.head_dim)

        contexts = group.contexts[:, None]
        keys = np.arange(contexts.max())[None]
        offsets = np.arange(pages.block_size)
        slots = group.tables[:, :, None] * pages.block_size + offsets
        slots = slots.reshape(rows, -1)[:, : keys.size]
        window = config.window
        if window is not None:  # nothing before the window of a row's first token is read
            first = np.maximum(contexts - group.count - window + 1, 0)
            keys = first + np.arange((contexts - first).max())
            slots = np.take_along_axis(slots, keys.clip(max=slots.shape[1] - 1), axis=1)
        # Rows with a shorter context read one token again and again; the mask hides it.
        slots = np.where(keys < contexts, slots, slots[:, :1])
        # Line `slot * 2 * kv_heads + h` of the pages is head h of a slot: [2, rows, kv_heads, keys].
        heads = np.arange(2 * kv_heads).reshape(2, 1, kv_heads, 1)
        index = slots[None, :, None, :] * (2 * kv_heads) + heads
        self._index = torch.from_numpy(index.ravel())
        # One buffer serves all layers, so that memory for a long context is taken once a step.
        context = pages.pages.new_empty(*index.shape, config.head_dim)
        self._keys, self._values = context.unbind()
        self._lines = context.view(-1, config.head_dim)

        # A token sees itself and what comes before it, as far as its window reaches. The last token
        # of a chunk sees the end of the context: the triangle sits at the bottom right, not at the
        # top left as in `is_causal=True`.
        queries = (contexts - group.count + np.arange(group.count))[:, :, None]
        hidden = keys[:, None] > queries
        if window is not None:
            hidden |= keys[:, None] <= queries - window
        mask = np.where(hidden, np.float32(-np.inf), np.float32(0))
        # One line for each query that shares the keys: [rows, 1, tokens * sharing, keys].
        mask = mask.repeat(self._shape[3], axis=1)[:, None]
        self._mask = torch.from_numpy(mask).to(pages.pages.dtype)

    def attend(self, queries: Tensor, heads: Tensor) -> Tensor:
        """`queries` [rows * count, heads, head_dim] -> [rows * count, heads * head_dim]."""
        torch.index_select(heads, 0, self._index, out=self._lines)
        # Queries that share a head of keys are stacked as further tokens of that head. The kernel
        # then reads the keys once for all of them (`enable_gqa` reads them once for each).
        rows, count, kv_heads, _, head_dim = self._shape
        stacked = queries.reshape(self._shape).transpose(1, 2).reshape(rows, kv_heads, -1, head_dim)
        mixed = F.scaled_dot_product_attention(
            stacked, self._keys, self._values, attn_mask=self._mask
        )
        unstacked = mixed.view(rows, kv_heads, count, -1, head_dim).transpose(1, 2)
        return unstacked.reshape(rows * count, -1)
