"""A projection, y = x W^T + b, by whichever library of torch's is faster for so many tokens.

On x86 torch multiplies float32 matrices with MKL. oneDNN, which torch brings along and which its
compiler uses, wants the weights packed into tiles first and is then up to twice as fast: measured on an
AMD EPYC, 8 tokens take 0.6 of MKL's time, 32 and more take 0.45. For one to three tokens, where a
product is little more than reading the weights, plain rows and MKL are faster.
"""

import platform

import torch
from torch import Tensor
from torch.nn import functional as F

_X86 = platform.machine() in ("x86_64", "AMD64")
# The operations are those that torch.compile calls; they are not part of torch's public interface.
_PACK = (
    _X86
    and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
)
_FEWEST = 4  # tokens from which on packed weights are faster
# Packed weights are a second copy. Those of larger models do not fit into any cache, so that there is
# less to gain, and memory would be missed.
_LARGEST = 2**20


class Linear:
    """y = x W^T + b; `weight` [out, in], `bias` [out] or None."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        self._packed: Tensor | None = None
        if _PACK and weight.dtype == torch.float32 and weight.numel() <= _LARGEST:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 32)

    def __call__(self, x: Tensor) -> Tensor:
        """`x` [tokens, in] -> [tokens, out]"""
        tokens = x.shape[0]
        if self._packed is None or tokens < _FEWEST:
            return F.linear(x, self.weight, self.bias)
        # oneDNN compiles code for each number of tokens it meets: let there be few.
        padding = -tokens % 8 if tokens > 32 else 0
        if padding:
            x = F.pad(x, (0, 0, 0, padding))
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return y[:tokens] if padding else y
