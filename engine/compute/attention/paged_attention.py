"""Attention that reads keys and values from pages.

Each layer writes the new tokens' keys and values into their slots. Then every group of rows reads its
context back, block by block as its block tables say (with a sliding window, the end of it), and
attends to what it has read.

A context may end inside a block. Behind its end lie slots that hold anything, NaN included: nobody
has written them, or somebody else has. Where all rows end at the same place those are cut off, where
rows differ they are hidden by a mask. A mask alone does not do, because 0 * NaN is NaN, so they are
filled with zeros as well: in the copy, never in the pages.

A GPU engine reads pages inside the kernel instead of copying them: vLLM's PagedAttention,
arXiv:2309.06180. A backend for such a kernel is a class like this one: made once per step from pages
and batch, called once per layer.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from engine.compute.attention.kv_cache import KVCache
from engine.compute.batch import Batch, Group
from engine.compute.model.config import ModelConfig


class PagedAttention:
    """One step's attention, called once per layer."""

    def __init__(self, config: ModelConfig, pages: KVCache, batch: Batch) -> None:
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
        blocks = self._pages.blocks[layer]
        outputs = [group.attend(queries[group.tokens], blocks) for group in self._groups]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


class _GroupAttention:
    """Rows of equally many tokens: one read and one attention call per layer."""

    def __init__(self, config: ModelConfig, pages: KVCache, group: Group) -> None:
        self.tokens = group.tokens
        rows, size = len(group.contexts), pages.block_size
        kv_heads, head_dim = config.num_kv_heads, config.head_dim
        self._shape = (rows, group.count, kv_heads, config.num_heads // kv_heads, head_dim)

        # Nothing before the window of a row's first token is read; without a window, all is.
        window = config.window or max(group.contexts)
        begins = [max(context - group.count - window + 1, 0) for context in group.contexts]
        skips = [begin // size for begin in begins]  # leading blocks that are not read
        ends = [-(-context // size) for context in group.contexts]
        width = max(end - skip for end, skip in zip(ends, skips, strict=True))
        index: list[int] = []
        for table, skip, end in zip(group.tables, skips, ends, strict=True):
            # Shorter rows are filled up with a block of their own.
            index += table[skip:end] + [table[skip]] * (width - (end - skip))
        self._index = torch.tensor(index)

        # One buffer serves all layers, so that memory for a long context is taken once a step.
        read = pages.pages.new_empty(rows, width * size, 2, kv_heads, head_dim)
        self._blocks = read.view(len(index), -1)
        self._slots = read.view(rows * width * size, -1)
        low = min(begin % size for begin in begins)
        high = max(
            context - skip * size for context, skip in zip(group.contexts, skips, strict=True)
        )
        keys, values = read[:, low:high].unbind(dim=2)
        self._keys, self._values = keys.transpose(1, 2), values.transpose(1, 2)

        self._mask: Tensor | None = None
        self._outside: Tensor | None = None
        uneven = group.contexts[0] != group.contexts[-1]
        # Prompts from their beginning see themselves and nothing else. The kernel knows that shape
        # and leaves out what is hidden.
        self._causal = 1 < group.count == group.contexts[-1] <= window
        if uneven or (group.count > 1 and not self._causal):
            contexts = np.array(group.contexts)[:, None]
            firsts = np.array(skips)[:, None] * size  # positions of the first slots that are read
            mask = _mask(firsts + np.arange(low, high), contexts, group.count, window)
            # One line for each query that shares the keys: [rows, 1, tokens * sharing, keys].
            mask = mask.repeat(self._shape[3], axis=1)[:, None]
            self._mask = torch.from_numpy(mask).to(pages.pages.dtype)
        if uneven:
            slots = firsts + np.arange(width * size)
            refill = slots >= np.array(ends)[:, None] * size
            slots = np.where(refill, firsts + np.arange(width * size) % size, slots)
            outside = (slots < np.array(begins)[:, None]) | (slots >= contexts)
            self._outside = torch.from_numpy(np.flatnonzero(outside))

    def attend(self, queries: Tensor, blocks: Tensor) -> Tensor:
        """`queries` [rows * count, heads, head_dim] -> [rows * count, heads * head_dim]."""
        torch.index_select(blocks, 0, self._index, out=self._blocks)
        if self._outside is not None:
            self._slots.index_fill_(0, self._outside, 0.0)
        rows, count, kv_heads, _, head_dim = self._shape
        if self._causal:
            own = queries.view(rows, count, -1, head_dim).transpose(1, 2)
            mixed = F.scaled_dot_product_attention(
                own, self._keys, self._values, is_causal=True, enable_gqa=True
            )
            return mixed.transpose(1, 2).reshape(rows * count, -1)
        # Queries that share a head of keys are stacked as further tokens of that head. The kernel
        # then reads the keys once for all of them (`enable_gqa` reads them once for each).
        stacked = queries.view(self._shape).transpose(1, 2).reshape(rows, kv_heads, -1, head_dim)
        mixed = F.scaled_dot_product_attention(
            stacked, self._keys, self._values, attn_mask=self._mask
        )
        if count == 1:
            return mixed.view(rows, -1)
        unstacked = mixed.view(rows, kv_heads, count, -1, head_dim).transpose(1, 2)
        return unstacked.reshape(rows * count, -1)


def _mask(
    positions: NDArray[np.int64], contexts: NDArray[np.int64], count: int, window: int
) -> NDArray[np.float32]:
    """What to add to the scores: [rows, count, keys], 0 for a key that is seen and -inf for others.

    positions  [rows, keys] the keys' places in their texts
    contexts   [rows, 1] where each row's last token sees the end of its text

    A token sees itself and what comes before it, as far as its window reaches. The last token of a
    chunk sees the end of the context: the triangle sits at the bottom right, not at the top left as in
    `is_causal=True`.
    """
    queries = (contexts - count + np.arange(count))[:, :, None]
    keys = positions[:, None]
    seen = (keys <= queries) & (keys > queries - window)
    return np.where(seen, np.float32(0), np.float32(-np.inf))
