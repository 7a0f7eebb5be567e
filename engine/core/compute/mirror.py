"""Attention that reads a mirror: contiguous copies of the contexts of requests that decode.

`PagedAttention` gathers each context from its blocks in every step, although all but one of its tokens
were there in the step before. The mirror keeps the gathered copy and adds each new token's keys and
values to it. It stores all keys of a head side by side, which torch's kernel reads about twice as fast
as the blocks' layout.

The blocks remain the truth: every token is written to its slot as well, and a copy that may be outdated
is made again from the blocks. A request's copy is up to date in a step if

- the previous forward pass updated it, and the request now computes the token after it,
- the request still has the blocks that it had then (it does not after a preemption, after a copy on
  write, or if the prefix cache replaced a block by an equal one), and
- nothing but that pass has written to a block since. `KVCache` clears the mirror when blocks are copied
  and when pages arrive from another engine. During a pass, a block has only one writer.

The mirror has at most as many token slots as the KV memory. `PagedAttention` handles the groups that do
not fit, chunks of prompts, drafts, and layers with a sliding window, which read few blocks. A prompt
that is computed at once attends to its own keys and values.

Differs from vLLM and SGLang, whose kernels read the blocks in place. torch has such kernels for GPUs
only, and its kernel for CPUs needs contiguous keys.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.core.compute.kv_cache import KVCache
from engine.core.compute.model import Batch, Group, ModelConfig
from engine.core.compute.paged_attention import Kernel, PagedGroup, attend_with_sinks

# A region gets room for this many more tokens per row than it needs, so that it seldom has to grow.
_ROOM = 64


class MirroredAttention:
    """One step's attention, with the interface and the results of `PagedAttention`."""

    def __init__(self, config: ModelConfig, kv_cache: KVCache, batch: Batch) -> None:
        self._kv_cache = kv_cache
        self._windows = config.windows
        self._slots: dict[int | None, Tensor] = {}
        self._groups: dict[int | None, list[tuple[slice, _Region | _Prompts | PagedGroup]]] = {}
        has_own_kv = not config.num_kv_shared_layers  # in each layer
        assert kv_cache.mirror is not None, "made with the KV memory"
        regions = kv_cache.mirror.update(batch.groups, kv_cache)
        for layer, window in enumerate(config.windows):
            if window in self._slots:
                continue
            self._slots[window] = batch.slot_mapping
            if kv_cache.has_window_pages:
                self._slots[window] = kv_cache.slots_in(layer, batch.slot_mapping)
            self._groups[window] = []
            for group in batch.groups:
                own: _Region | _Prompts | PagedGroup | None = None
                if window is None:
                    own = regions.get(group.tokens.start)
                is_whole = 1 < group.query_len == group.seq_lens[-1] <= (window or group.query_len)
                if is_whole and has_own_kv:
                    heads, size = kv_cache.shapes[layer]
                    shape = (len(group.seq_lens), group.query_len, -1, size)
                    own = _Prompts(shape, heads, kv_cache.activation_dtype)
                own = own or PagedGroup(config, kv_cache, group, layer)
                self._groups[window].append((group.tokens, own))

    def __call__(
        self, layer: int, queries: Tensor, keys_values: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        """Write the new keys and values, then attend from each token to its context.

        See `PagedAttention`.
        """
        window, cache = self._windows[layer], self._kv_cache
        if keys_values is not None:
            stored = keys_values
            if cache.codec is not None:
                # Attend to what the blocks hold, so that all ways to read a token give the same.
                stored = cache.codec.encode(keys_values)
                keys_values = cache.codec.decode(stored, torch.empty_like(keys_values))
            elif keys_values.dtype != cache.tensor.dtype:
                stored = keys_values = keys_values.to(cache.tensor.dtype)
            cache.by_slot[layer].index_copy_(0, self._slots[window], stored)
        groups = self._groups[window]
        kernel = (
            F.scaled_dot_product_attention if sinks is None else partial(attend_with_sinks, sinks)
        )
        if len(groups) == 1:
            return groups[0][1].attend(layer, queries, keys_values, kernel)
        outputs: list[Tensor] = []
        for tokens, group in groups:
            own = None if keys_values is None else keys_values[tokens]
            outputs.append(group.attend(layer, queries[tokens], own, kernel))
        return torch.cat(outputs)


@dataclass(slots=True)
class _Prompts:
    """Prompts of equal length that are computed from their first token to their last.

    shape     of their queries: [rows, query_len, heads, head_dim]
    kv_heads  heads of their keys
    dtype     in which attention computes
    """

    shape: tuple[int, int, int, int]
    kv_heads: int
    dtype: torch.dtype

    def attend(
        self, layer: int, queries: Tensor, keys_values: Tensor | None, kernel: Kernel
    ) -> Tensor:
        """`queries` [rows * query_len, heads, head_dim] -> [rows * query_len, heads * head_dim]."""
        assert keys_values is not None
        heads = keys_values.to(self.dtype).view(self.shape).transpose(1, 2)
        parts = torch.split(heads, self.kv_heads, dim=1)
        own = queries.view(self.shape).transpose(1, 2)
        output = kernel(own, parts[0], parts[-1], is_causal=True, enable_gqa=True)
        return output.transpose(1, 2).reshape(len(queries), -1)


class Mirror:
    """The regions of the groups that decode; it is empty until the first of them does.

    max_tokens  the most token slots of all regions together

    It does not refer to the KV cache, which refers to it: a cycle would keep the memory of both for a
    while after their last use.
    """

    def __init__(self, config: ModelConfig, kv_cache: KVCache) -> None:
        self._config = config
        self.max_tokens = kv_cache.num_blocks * kv_cache.block_size
        self._layers = [one for one in config.layers_with_kv if config.windows[one] is None]
        self._regions: list[_Region] = []

    def clear(self) -> None:
        """Make every copy again, because blocks change outside of a forward pass."""
        for region in self._regions:
            region.rows = {}

    def update(self, groups: list[Group], kv_cache: KVCache) -> "dict[int, _Region]":
        """Return the regions of the groups that decode and fit, by the index of a group's first token.

        A region has the context of each row, without its new token.
        """
        free, self._regions = self._regions, []
        left = self.max_tokens
        claims: list[tuple[Group, _Region | None]] = []
        best: _Region | None = None
        one: _Region | None = None
        for group in groups:
            if group.query_len > 1 or not self._layers:
                continue
            # A group gets the region that has most of its rows.
            best, most = None, 0
            for one in free:
                shared = len(one.rows.keys() & group.requests)
                if shared > most:
                    best, most = one, shared
            if best is not None:
                free.remove(best)
                left -= best.places * best.tokens
            claims.append((group, best))
        best = one = None
        free.clear()  # this frees their memory
        regions: dict[int, _Region] = {}
        while claims:
            group, region = claims.pop(0)
            count, longest = len(group.requests), group.seq_lens[-1]
            if region is not None and (
                left < 0 or count > region.places or longest > region.tokens
            ):
                left += region.places * region.tokens
                region = None  # this frees its memory before more is allocated
            if region is None:
                tokens = min(longest + _ROOM, left // count)
                if tokens < longest:
                    continue
                region = _Region(self._config, kv_cache, self._layers, count, tokens)
                left -= count * tokens
            region.update(group, kv_cache)
            regions[group.tokens.start] = region
        self._regions = list(regions.values())
        return regions


class _Row(NamedTuple):
    """A copy of a request's first `length` positions, which are in the blocks of `table`."""

    place: int
    table: list[int]
    length: int


_NONE = _Row(-1, [], -1)


class _Region:
    """The contexts of a group, side by side in memory, for one attention call per layer.

    rows  the copies by request, in the order of the group

    Its memory is `[layers, parts, places, kv_heads, tokens, head_dim]`, decoded. Slots past the end
    of a row hold zeros or outdated copies, never garbage, because 0 * NaN would be NaN.
    """

    def __init__(
        self, config: ModelConfig, cache: KVCache, layers: list[int], places: int, tokens: int
    ) -> None:
        """`layers` are those with KV of their own and without a window."""
        self._config, self._layers, self._parts = config, layers, cache.parts
        self._kv_heads, self._head_dim = cache.shapes[layers[0]]
        self._sharing = config.num_heads // self._kv_heads
        self.rows: dict[int, _Row] = {}
        self.places, self.tokens = places, tokens
        shape = len(layers), cache.parts, places, self._kv_heads, tokens, self._head_dim
        self._memory = cache.tensor.new_zeros(shape, dtype=cache.activation_dtype)
        self._by_slot = dict(zip(layers, self._memory.flatten(1, 4), strict=True))

    def update(self, group: Group, cache: KVCache) -> None:
        """Copy the contexts that are missing, and prepare the step."""
        count, longest, size = len(group.requests), group.seq_lens[-1], cache.block_size
        before, self.rows = self.rows, {}  # no copy is valid if Ctrl-C interrupts this
        rows, missing, empty = dict[int, _Row](), list[int](), {*range(count)}
        for request, table, end in zip(
            group.requests, group.block_tables, group.seq_lens, strict=True
        ):
            place, known, length = before.get(request, _NONE)
            rows[request] = _Row(place, table[: -(-end // size)], end)
            if place in empty and length == end - 1 and known == table[: len(known)]:
                empty.discard(place)
            else:
                missing.append(request)
        for request in missing:
            rows[request] = row = rows[request]._replace(place=empty.pop())
            self._copy(row, cache)
        if missing or [*before] != group.requests:
            self._lay_out(rows)
        else:
            self._index += 1
        # This step's part of the memory: keys and values of each layer.
        views = self._memory[:, :, :count, :, :longest].flatten(0, 1).unbind()
        parts = self._parts
        contexts = zip(views[::parts], views[parts - 1 :: parts], strict=True)
        self._contexts = dict(zip(self._layers, contexts, strict=True))
        self._mask: Tensor | None = None
        if self._hidden is not None:
            self._hidden.view(-1).index_fill_(0, self._newest, 0.0)
            self._newest += 1
            self._mask = self._hidden[..., :longest].expand(-1, -1, self._sharing, -1)
        self.rows = rows

    def _copy(self, row: _Row, cache: KVCache) -> None:
        """Copy all positions of a row from their blocks, except for the last: it is computed next."""
        length = row.length - 1
        blocks = torch.tensor(row.table, device=cache.tensor.device)
        shape = len(row.table) * cache.block_size, self._parts, self._kv_heads, -1
        for memory, layer in zip(self._memory[:, :, row.place], self._layers, strict=True):
            slots = cache.by_block[layer].index_select(0, blocks).view(shape)
            if cache.codec is not None:
                decoded = memory.new_empty(*slots.shape[:-1], self._head_dim)
                slots = cache.codec.decode(slots, decoded)
            memory[:, :, :length] = slots[:length].permute(1, 2, 0, 3)
            memory[:, :, length:] = 0

    def _lay_out(self, rows: dict[int, _Row]) -> None:
        """Prepare what depends on which row is where."""
        device, tokens, heads = self._memory.device, self.tokens, self._kv_heads
        places, _, lengths = zip(*rows.values(), strict=True)
        in_order = [*places] == [*range(len(rows))]
        # The place of each row of the group, and the row at each place.
        place = torch.tensor(places, device=device)
        self._place: Tensor | None = None if in_order else place
        self._row: Tensor | None = None if in_order else place.argsort()
        # Where the heads of a row's new keys and values go, as indexes of `[slots, head_dim]`.
        newest = torch.tensor(lengths, device=device) - 1
        kind = torch.arange(self._parts, device=device)[:, None] * self.places
        head = torch.arange(heads, device=device)
        index = ((kind + place[:, None, None]) * heads + head) * tokens + newest[:, None, None]
        self._index = index.flatten()
        # What to add to the scores of a place's positions: 0 if they are visible, else -inf.
        self._hidden: Tensor | None = None
        if lengths[0] != lengths[-1]:
            first = newest if self._row is None else newest[self._row]
            is_hidden = torch.arange(tokens, device=device) >= first[:, None, None, None]
            self._hidden = torch.zeros_like(is_hidden, dtype=self._memory.dtype)
            self._hidden.masked_fill_(is_hidden, -torch.inf)
            self._newest = place * tokens + newest

    def attend(
        self, layer: int, queries: Tensor, keys_values: Tensor | None, kernel: Kernel
    ) -> Tensor:
        """Add the new keys and values, then attend.

        `queries` [rows, heads, head_dim] -> [rows, heads * head_dim]
        """
        if keys_values is None:
            layer = self._config.kv_source(layer)
        else:
            memory, new = self._by_slot[layer], keys_values.reshape(-1, self._head_dim)
            if new.dtype != memory.dtype:
                new = new.to(memory.dtype)
            memory.index_copy_(0, self._index, new)
        if self._row is not None:
            queries = queries.index_select(0, self._row)
        # The query heads that share a KV head are stacked; see `PagedGroup`.
        stacked = queries.view(-1, self._kv_heads, self._sharing, self._head_dim)
        keys, values = self._contexts[layer]
        output = kernel(stacked, keys, values, attn_mask=self._mask).flatten(1)
        return output if self._place is None else output.index_select(0, self._place)
