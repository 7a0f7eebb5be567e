"""The layers of a decoder that treat each token by itself: projections, embedding, norms, feed-forward.

Only attention lets tokens interact; see `decoder.py`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.models.config import LlamaConfig
from engine.models.kernels import TOKENS, choose
from engine.models.products import Product
from engine.models.quantized import quantized_product
from engine.models.weights.checkpoint import Checkpoint
from engine.models.weights.matrix import Matrix, RowLookup

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),  # arXiv:1606.08415
}


_LAST = len(TOKENS) - 1


class Linear:
    """y = x W^T + b, computed by the product that is the fastest on this machine; see `kernels.py`.

    On a GPU, that is always `F.linear`, which is the reference for all of them. Quantized matrices have
    products of their own; see `quantized.py`.

    weight  [out, in]
    bias    [out] or None

    few_tokens   the matrix seldom gets more than a few tokens, as an expert's; a second copy in another
                 layout would not pay
    may_replace  nothing else needs `weight`, so that another layout may take its place
    """

    def __init__(
        self,
        weight: Matrix,
        bias: Tensor | None = None,
        *,
        few_tokens: bool = False,
        may_replace: bool = True,
    ) -> None:
        self._products: Sequence[Product]
        if not isinstance(weight, Tensor):
            product = quantized_product(
                weight, bias, few_tokens=few_tokens, may_replace=may_replace
            )
            self._products = [product] * len(TOKENS)
        elif weight.device.type != "cpu":
            self._products = [partial(F.linear, weight=weight, bias=bias)] * len(TOKENS)
        else:
            chosen = choose(weight, bias, few_tokens=few_tokens, may_replace=may_replace)
            self._products = chosen.products

    def __call__(self, x: Tensor) -> Tensor:
        """Project `x` [tokens, in] to [tokens, out], in the precision of `x`."""
        return self._products[min((x.shape[0] - 1).bit_length(), _LAST)](x)  # see `kernel_index`


def row_lookup(weight: Tensor | RowLookup) -> Callable[[Tensor], Tensor]:
    """Return what looks up rows of `weight` [vocab, hidden]: token ids [tokens] -> [tokens, hidden].

    `weight` may be shared with the output layer.
    """
    return partial(F.embedding, weight=weight) if isinstance(weight, Tensor) else weight.rows


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
        normed = wide.div(length).mul_(self.weight)
        return normed if normed.dtype == x.dtype else normed.to(x.dtype)  # `to` takes its time


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


class FeedForward:
    """A gated feed-forward network with the weights under the name `prefix`.

    size  of its hidden layer, for an expert; None for the configuration's `intermediate_size`
    """

    def __init__(
        self, config: LlamaConfig, weights: Checkpoint, prefix: str, size: int | None = None
    ) -> None:
        hidden, inner = config.hidden_size, size or config.intermediate_size
        parts = {"gate_up": 2 * inner} if config.family.fused else {"gate": inner, "up": inner}
        rows = {f"{prefix}.{part}_proj.weight": count for part, count in parts.items()}
        gate_up_bias = down_bias = None
        if config.mlp_bias:
            biases = [weights.load(f"{prefix}.{p}_proj.bias", count) for p, count in parts.items()]
            gate_up_bias = torch.cat(biases)
            down_bias = weights.load(f"{prefix}.down_proj.bias", hidden)
        expert = size is not None
        gate_up = weights.load_matrix(rows, hidden)
        self._gate_up = Linear(gate_up, gate_up_bias, few_tokens=expert)
        down = weights.load_matrix({f"{prefix}.down_proj.weight": hidden}, inner)
        self._down = Linear(down, down_bias, few_tokens=expert)
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the network's output for `x` [tokens, hidden]: the same shape."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(self._activation(gate).mul_(up))


class ClampedFeedForward(FeedForward):
    """An expert of gpt-oss: (up + 1) * gate * sigmoid(alpha * gate), with both kept within a limit.

    The sigmoid is that of GELU's approximation (arXiv:1606.08415). Without limits, a few values became
    so large that half precision could not hold them.
    """

    def __init__(
        self, config: LlamaConfig, weights: Checkpoint, prefix: str, size: int | None = None
    ) -> None:
        super().__init__(config, weights, prefix, size)
        self._alpha, self._limit = config.swiglu

    def __call__(self, x: Tensor) -> Tensor:
        """Return the network's output for `x` [tokens, hidden]: the same shape."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        gate, up = gate.clamp(max=self._limit), up.clamp(-self._limit, self._limit)
        return self._down(torch.sigmoid(self._alpha * gate).mul_(gate).mul_(up.add_(1)))
