"""A projection, y = x W^T + b, computed by the fastest of torch's matrix libraries.

- Small float32 matrices on x86: oneDNN, which ships with torch and which torch.compile uses. It needs
  the weights packed into tiles first and is then up to twice as fast as MKL: on an AMD EPYC, 8 tokens
  take 0.6 of MKL's time, and 32 or more take 0.45. With one to three tokens, a product takes little
  longer than reading the weights, and MKL with unpacked weights is faster.
- Other matrices on a CPU: `products.py`, without a second copy of the weights.
- Half precision on a device that computes it natively, and GPUs: `F.linear`.

The reference for all of them is `F.linear`, which gives the same result.
"""

import platform

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.models.products import product, rounded_int8_product
from engine.models.weights.matrix import Int8Matrix, Matrix

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
    """y = x W^T + b; `weight` [out, in], `bias` [out] or None.

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
