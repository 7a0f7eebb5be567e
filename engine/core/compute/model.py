"""A model, as the runner sees it: its sizes, and one forward pass over a flat batch.

`engine/models` has the families that implement it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# (layer, queries [tokens, heads, head_dim], keys and values [tokens, 2 * kv_heads, head_dim])
# -> [tokens, heads * head_dim]; see `PagedAttention`.
Attend = Callable[[int, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes of a decoder; GPT-2 needs no others.

    num_kv_heads  number of KV heads, shared by num_heads query heads (grouped-query attention)
    max_context   longest text (prompt plus output) that the position embeddings support
    windows       [layers] number of tokens each token sees in this layer, including itself; None:
                  all before it
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

    def check_kv(self, num_blocks: int, block_size: int, num_window_pages: int | None) -> None:
        """Raise ConfigError if KV memory of this size does not fit beside what is loaded."""

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
) -> int:
    """Return the bytes of a `KVCache` of this size."""
    sliding = sum(window is not None for window in model.windows)
    if num_window_pages is None:
        sliding = num_window_pages = 0
    blocks = (model.num_layers - sliding) * num_blocks + sliding * num_window_pages
    return blocks * block_size * 2 * model.num_kv_heads * model.head_dim * dtype.itemsize


def kv_bytes_per_token(model: ModelConfig, dtype: torch.dtype) -> int:
    """Return the bytes of a token's keys and values in all layers."""
    return kv_bytes(model, dtype, 1, 1)
