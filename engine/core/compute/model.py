"""A model, as the runner sees it: its sizes, and one forward pass over a flat batch.

Prefill chunks and decodes are concatenated without padding, because every operation except attention
treats tokens independently. For attention, rows with the same number of tokens and similar context
lengths form a group and share a call (`engine/core/runner.py`).

`engine/models` has the families that implement it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from engine.core.runner import LogitPosition

if TYPE_CHECKING:
    from engine.core.compute.kv_cache import KVCodec

# (layer, queries [tokens, heads, head_dim], keys and values [tokens, 2 * kv_heads, head_dim], None for
# a layer that reads another one's, and in a model with attention sinks their scores [heads])
# -> [tokens, heads * head_dim]; see `PagedAttention`.
Attend = Callable[..., Tensor]


@dataclass(slots=True)
class Group:
    """Rows with the same number of tokens, adjacent in the flat batch, for one attention call.

    tokens        the group's slice of the flat batch
    query_len     number of tokens each row computes
    requests      [rows] ids of the requests
    seq_lens      [rows] number of tokens each row may see, including its own; ascending
    block_tables  [rows] block tables, each covering at least its row's `seq_lens`
    """

    tokens: slice
    query_len: int
    requests: list[int]
    seq_lens: list[int]
    block_tables: list[list[int]]


@dataclass(slots=True)
class Batch:
    """The flat batch of one step.

    token_ids        [tokens]
    positions        [tokens] each token's position in its own text
    slot_mapping     [tokens] the KV slot that each token's keys and values are written to
    logits_indices   [logits] tokens whose logits are needed: one for each entry of
                     `logit_positions`, then the prompt tokens to score, row by row
    has_drafts       whether any row has drafts
    logit_positions  where tokens are sampled, ordered by row, then sample, then draft
    groups           the attention groups, shortest rows first
    """

    token_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    logits_indices: Tensor
    has_drafts: bool
    logit_positions: list[LogitPosition]
    groups: list[Group]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The sizes of a decoder; GPT-2 needs no others.

    num_kv_heads  number of KV heads, shared by num_heads query heads (grouped-query attention)
    max_context   longest text (prompt plus output) that the position embeddings support
    windows       [layers] number of tokens each token sees in this layer, including itself; None:
                  all before it
    global_heads  (KV heads, head_dim) of layers without a window, if they differ from the others'
    num_kv_shared_layers  number of layers at the end that have no KV of their own; see `kv_source`
    kv_parts      vectors that a token keeps per KV head: 2, a key and a value, or 1 that is both
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_context: int
    norm_eps: float
    tied_embeddings: bool
    windows: tuple[int | None, ...]
    global_heads: tuple[int, int] | None = None
    num_kv_shared_layers: int = 0
    kv_parts: int = 2

    def kv_shape(self, layer: int) -> tuple[int, int]:
        """Return the number of KV heads of a layer and their size."""
        if self.global_heads is not None and self.windows[layer] is None:
            return self.global_heads
        return self.num_kv_heads, self.head_dim

    def kv_source(self, layer: int) -> int:
        """Return the layer whose KV a layer reads.

        This is the layer itself, or, for one of those that share KV, the last layer before all of
        them that has the same window.
        """
        own = self.num_layers - self.num_kv_shared_layers
        if layer < own:
            return layer
        return max(one for one in range(own) if self.windows[one] == self.windows[layer])

    @property
    def layers_with_kv(self) -> range:
        """The layers that have KV of their own."""
        return range(self.num_layers - self.num_kv_shared_layers)

    @property
    def window(self) -> int | None:
        """The widest sliding window of a layer; None if no layer slides."""
        return max((window for window in self.windows if window is not None), default=None)


class Model(Protocol):
    """A decoder with its weights.

    fingerprint   of what keys and values depend on: equal fingerprints compute equal KV
    expert_loads  how many tokens each expert computed in the latest `forward`; see `Runner`
    kernels       how each matrix is multiplied on a CPU: "float32 320x192" -> "linear to 8, packed"
    """

    dtype: torch.dtype
    device: torch.device
    num_parameters: int
    weight_bytes: int
    fingerprint: str
    expert_loads: list[list[int]]
    kernels: Mapping[str, str]

    @property
    def config(self) -> ModelConfig:
        """Its sizes."""

    def prepare(self, positions: int) -> None:
        """Precompute what depends on positions. Called before `forward`."""

    def check_kv(
        self, num_blocks: int, block_size: int, num_window_pages: int | None, kv_dtype: str = "auto"
    ) -> None:
        """Raise ConfigError if KV memory of this size does not fit beside what is loaded."""

    def kv_codec(self, kv_dtype: str) -> "KVCodec | None":
        """Return the codec of a `kv_dtype`; None for "auto"."""

    def forward(
        self, token_ids: Tensor, positions: Tensor, attend: Attend, logits_indices: Tensor
    ) -> Tensor:
        """Return the logits after each token of `logits_indices`: float32 [logits, vocab]."""


def kv_bytes(
    model: ModelConfig,
    dtype: torch.dtype,
    num_blocks: int,
    block_size: int,
    num_window_pages: int | None = None,
    *,
    scale_bytes: int = 0,
) -> int:
    """Return the bytes of a `KVCache` of this size, with a scale of `scale_bytes` for each vector."""
    size = 0
    for layer in model.layers_with_kv:
        blocks = num_blocks
        if num_window_pages is not None and model.windows[layer] is not None:
            blocks = num_window_pages
        heads, head_dim = model.kv_shape(layer)
        size += blocks * heads * (head_dim * dtype.itemsize + scale_bytes)
    return size * block_size * model.kv_parts


def mirror_bytes(
    model: ModelConfig, activations: torch.dtype, num_blocks: int, block_size: int
) -> int:
    """Return the most bytes of a `Mirror`: all token slots, but no sliding layer."""
    return kv_bytes(model, activations, num_blocks, block_size, 0)


def kv_bytes_per_token(model: ModelConfig, dtype: torch.dtype) -> int:
    """Return the bytes of a token's keys and values in all layers that have their own."""
    return kv_bytes(model, dtype, 1, 1)
