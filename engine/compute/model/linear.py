"""A projection, y = x W^T + b, computed by the faster of torch's two matrix libraries.

On x86 torch multiplies float32 matrices with MKL. oneDNN, which ships with torch and which
torch.compile uses, needs the weights packed into tiles first and is then up to twice as fast: on an
AMD EPYC, 8 tokens take 0.6 of MKL's time, and 32 or more take 0.45. With one to three tokens, a
product takes little longer than reading the weights, and MKL with unpacked weights is faster.

The reference for this file is `F.linear`, which gives the same result.
"""

import platform

import torch
from torch import Tensor
from torch.nn import functional as F

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
_MAX_WEIGHTS = 2**20


class Linear:
    """y = x W^T + b; `weight` [out, in], `bias` [out] or None."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        self._packed: Tensor | None = None
        if _CAN_PACK and weight.dtype == torch.float32 and weight.numel() <= _MAX_WEIGHTS:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 32)

    def __call__(self, x: Tensor) -> Tensor:
        """Project `x` [tokens, in] to [tokens, out]."""
        tokens = x.shape[0]
        if self._packed is None or tokens < _MIN_TOKENS:
            return F.linear(x, self.weight, self.bias)
        # oneDNN compiles code for each number of tokens, so pad large ones to a multiple of 8.
        padding = -tokens % 8 if tokens > 32 else 0
        if padding:
            x = F.pad(x, (0, 0, 0, padding))
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return y[:tokens] if padding else y
