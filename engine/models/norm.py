"""RMSNorm, and the norms of queries and keys.

Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467.
"""

import math

import torch
from torch import Tensor

from engine.models.config import LlamaConfig
from engine.models.weights.checkpoint import Checkpoint


class RMSNorm:
    """x / sqrt(mean(x^2) + eps) * weight, over the last dimension.

    It is computed as x / hypot(|x|, sqrt(n eps)) * (sqrt(n) weight), which is equal and takes half as
    long as `F.rms_norm` on a CPU. The computation is in float32, whatever the model's precision.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        size = weight.shape[-1]
        self.weight = weight.float() * math.sqrt(size)
        self._floor = torch.tensor(math.sqrt(size * eps), device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise `x` [..., n]."""
        wide = x.float()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).hypot_(self._floor)
        return wide.div(length).mul_(self.weight).to(x.dtype)


def load_norm(config: LlamaConfig, weights: Checkpoint, name: str, size: int) -> RMSNorm:
    """Load the norm with the weight `name` [size]."""
    return RMSNorm(_load_weight(config, weights, name, size), config.norm_eps)


class HeadNorm(RMSNorm):
    """Normalises each head of queries and keys by itself: [tokens, heads + kv_heads, head_dim]."""

    def __init__(self, config: LlamaConfig, weights: Checkpoint, prefix: str) -> None:
        query, key = (
            _load_weight(config, weights, f"{prefix}.{name}_norm.weight", config.head_dim)
            for name in ("q", "k")
        )
        per_head = [query * config.query_scale] * config.num_heads + [key] * config.num_kv_heads
        super().__init__(torch.stack(per_head), config.norm_eps)


class ProjectionNorm:
    """Normalises all heads of the queries together, and all heads of the keys."""

    def __init__(self, config: LlamaConfig, weights: Checkpoint, prefix: str) -> None:
        self._split = config.num_heads
        queries, keys = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))
        self._queries = load_norm(config, weights, f"{prefix}.q_norm.weight", queries)
        self._keys = load_norm(config, weights, f"{prefix}.k_norm.weight", keys)

    def __call__(self, queries_keys: Tensor) -> Tensor:
        """Normalise `queries_keys` [tokens, heads + kv_heads, head_dim]."""
        queries = self._queries(queries_keys[:, : self._split].flatten(1))
        keys = self._keys(queries_keys[:, self._split :].flatten(1))
        return torch.cat((queries, keys), dim=1).view(queries_keys.shape)


def _load_weight(config: LlamaConfig, weights: Checkpoint, name: str, size: int) -> Tensor:
    return weights.load(name, size).float() + config.family.norm_offset
