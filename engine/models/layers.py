"""The layers of a decoder that treat each token by itself: projections, embedding, norms, feed-forward.

Only attention lets tokens interact; see `decoder.py`.
"""

import math
import platform
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.models.config import LlamaConfig
from engine.models.products import product, rounded_int8_product
from engine.models.weights.checkpoint import Checkpoint
from engine.models.weights.matrix import Int8Matrix, Matrix

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),  # arXiv:1606.08415
}


# The operations that torch.compile calls; they are not part of torch's public interface.
_CAN_PACK = (
    platform.machine() in ("x86_64", "AMD64")
    and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
_MIN_TOKENS = 4  # with fewer tokens, packed weights are slower
# Packed weights are a second copy. Those of larger models do not fit in any CPU cache, so the gain is
# smaller and not worth the memory.
_MAX_WEIGHTS = 2**19


class Linear:
    """y = x W^T + b, computed by the fastest of torch's matrix libraries.

    - Small float32 matrices on x86: oneDNN, which ships with torch and which torch.compile uses. It
      needs the weights packed into tiles first and is then up to twice as fast as MKL: on an AMD EPYC,
      8 tokens take 0.6 of MKL's time, and 32 or more take 0.45. With one to three tokens, a product
      takes little longer than reading the weights, and MKL with unpacked weights is faster.
    - Other matrices on a CPU: `products.py`, without a second copy of the weights.
    - Half precision on a device that computes it natively, and GPUs: `F.linear`.

    The reference for all of them is `F.linear`, which gives the same result.

    weight  [out, in]
    bias    [out] or None

    packs  pack a small matrix; False if it seldom gets more than a few tokens, such as an expert's
    """

    def __init__(self, weight: Matrix, bias: Tensor | None = None, *, packs: bool = True) -> None:
        self.weight, self.bias = weight, bias
        self._packed: Tensor | None = None
        if not packs or isinstance(weight, Int8Matrix) or weight.device.type != "cpu":
            return
        if _CAN_PACK and weight.dtype == torch.float32 and weight.numel() <= _MAX_WEIGHTS:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 32)

    def __call__(self, x: Tensor) -> Tensor:
        """Project `x` [tokens, in] to [tokens, out], in the precision of `x`."""
        weight = self.weight
        if isinstance(weight, Int8Matrix):
            y = _int8_product(x, weight)
        elif self._packed is not None:
            if x.shape[0] < _MIN_TOKENS:
                return F.linear(x, weight, self.bias)
            return _packed_product(x, self._packed, self.bias)
        elif x.device.type == "cpu" and x.dtype == torch.float32:
            y = product(x, weight)
        else:
            return F.linear(x, weight, self.bias)
        return y if self.bias is None else y.add_(self.bias)


def _packed_product(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    tokens = x.shape[0]
    # oneDNN compiles code for each number of tokens, so pad large ones to a multiple of 8.
    padding = -tokens % 8 if tokens > 32 else 0
    if padding:
        x = F.pad(x, (0, 0, 0, padding))
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return y[:tokens] if padding else y


def _int8_product(x: Tensor, weight: Int8Matrix) -> Tensor:
    if x.device.type != "cpu":
        return F.linear(x, weight.values.to(x.dtype)).mul_(weight.scales)
    y = rounded_int8_product(x, weight.values)
    if y is None:
        y = product(x.float(), weight.values)
    return y.mul_(weight.scales).to(x.dtype)


class Embedding:
    """Looks up rows of `weight` [vocab, hidden], which may be shared with the output layer."""

    def __init__(self, weight: Matrix) -> None:
        self.weight = weight

    def __call__(self, token_ids: Tensor) -> Tensor:
        """Return the rows of `token_ids` [tokens]: [tokens, hidden], in the model's precision."""
        if isinstance(self.weight, Int8Matrix):
            return self.weight.rows(token_ids)
        return F.embedding(token_ids, self.weight)


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
        dense = size is None  # the packed copies of many small experts would double the memory
        self._gate_up = Linear(weights.load_matrix(rows, hidden), gate_up_bias, packs=dense)
        down = weights.load_matrix({f"{prefix}.down_proj.weight": hidden}, inner)
        self._down = Linear(down, down_bias, packs=dense)
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the network's output for `x` [tokens, hidden]: the same shape."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(self._activation(gate).mul_(up))
