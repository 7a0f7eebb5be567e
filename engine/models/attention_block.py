"""The attention network of a layer: project to queries, keys and values, rotate, attend, project back.

Tokens interact only in `attend`, which is passed in as a function, so this file does not depend on
blocks, requests or steps.

Queries, keys and values are computed by one matrix, as in vLLM, because a small model's decode step is
limited by the number of operations, not by arithmetic.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.core.compute.model import Attend
from engine.models.config import LlamaConfig
from engine.models.layers import HeadNorm, Linear, ProjectionNorm
from engine.models.weights.checkpoint import Checkpoint

_QK_NORMS: dict[str, type[HeadNorm | ProjectionNorm]] = {
    "head": HeadNorm,
    "projection": ProjectionNorm,
}


class Rotation(NamedTuple):
    """The cosines and sines of a step's positions: each [tokens, 1, rotated values of a head]."""

    cos: Tensor
    sin: Tensor


class Attention:
    """Self-attention with the weights under the name `prefix`.

    rotation  index of the layer's rotation in the sequence that `__call__` gets; None: the layer
              rotates nothing (NoPE, arXiv:2305.19466) and tells positions apart only by what it sees
    """

    def __init__(
        self,
        config: LlamaConfig,
        weights: Checkpoint,
        prefix: str,
        layer: int,
        rotation: int | None,
    ) -> None:
        self._layer = layer
        self._rotation = rotation
        self._heads = config.num_heads
        self._num_rotated = config.num_heads + config.num_kv_heads  # queries and keys
        self._shape = (-1, config.num_heads + 2 * config.num_kv_heads, config.head_dim)
        hidden = config.hidden_size
        queries, keys = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))

        qkv = {"q": queries, "k": keys, "v": keys}
        if config.family.fused:
            qkv = {"qkv": queries + 2 * keys}
        rows = {f"{prefix}.{part}_proj.weight": size for part, size in qkv.items()}
        bias: Tensor | None = None
        if config.qkv_bias:
            parts = [weights.load(f"{prefix}.{p}_proj.bias", size) for p, size in qkv.items()]
            bias = torch.cat(parts)
        self._qkv = Linear(weights.load_matrix(rows, hidden), bias)
        kind = config.family.qk_norm
        self._qk_norm = None if kind is None else _QK_NORMS[kind](config, weights, prefix)
        output = weights.load_matrix({f"{prefix}.o_proj.weight": hidden}, queries)
        output_bias = weights.load(f"{prefix}.o_proj.bias", hidden) if config.output_bias else None
        self._output = Linear(output, output_bias)

    def __call__(self, x: Tensor, rotations: Sequence[Rotation], attend: Attend) -> Tensor:
        """Return the network's output for `x` [tokens, hidden]: the same shape."""
        heads = self._qkv(x).view(self._shape)
        queries_keys = heads[:, : self._num_rotated]
        normed = queries_keys if self._qk_norm is None else self._qk_norm(queries_keys)
        if self._rotation is not None:
            _rotate(normed, rotations[self._rotation], out=queries_keys)
        return self._output(attend(self._layer, heads[:, : self._heads], heads[:, self._heads :]))


def _rotate(x: Tensor, rotation: Rotation, out: Tensor) -> None:
    """Rotate the first values of each head of `x`, which is overwritten, into `out`; see `rope.py`."""
    cos, sin = rotation
    size = cos.shape[-1]
    if size < x.shape[-1]:
        x, out = x[..., :size], out[..., :size]
    # The pair (a, b) becomes (a cos - b sin, b cos + a sin).
    swapped = x.roll(size // 2, dims=-1)
    torch.addcmul(x.mul_(cos), swapped, sin, out=out)
