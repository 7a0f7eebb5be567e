"""Products of int8 matrices, x V^T, whose sums are exact integers: the same bits from every kernel.

The values of x are rounded to integers of -127 to 127, half-way cases to the even one.

    linear  torch's own product, oneDNN's `_int_mm`
    packed  FBGEMM's, which ships with torch on x86. The weights are kept in a layout in which a core
            reads memory in order. It is faster for the few tokens of a decode step, and slower for a
            prompt of some hundred tokens

Processors with instructions for int8 products (VNNI; Intel since Ice Lake, AMD since Zen 4) multiply
four pairs of bytes at once. Older ones add two products in 16 bits and saturate: both libraries add 128
to x first, and 2 * 255 * 127 does not fit in 16 bits. It fits if x <= 0, so `linear` splits x there:
into a row of its negative and a row of its positive values. A single token still reads the weights
once. A product of the largest values finds out what the machine needs. `packed` exists only if its sums
are right as they are.

Without oneDNN, on ARM, the same integers are multiplied as floating-point numbers, and the sums are
rounded to bfloat16 (a relative error of 0.2 %), because torch's kernel for a few tokens does so.

Measured on an AMD EPYC (Zen 4), one thread, [m, 896] x [896, 9728], in milliseconds of CPU time;
"split" is the same machine limited to AVX2:

| tokens        | 1    | 2    | 8    | 32   | 64   | 256  |
|---------------|------|------|------|------|------|------|
| linear        | 1.0  | 1.4  | 1.6  | 2.5  | 3.8  | 11   |
| linear, split | 1.8  | 1.9  | 3.0  | 7.2  | -    | 43   |
| packed        | 0.6  | 0.7  | 0.8  | 2.0  | 3.8  | 18   |

Source: Khudia et al., FBGEMM, arXiv:2101.05615.
"""

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from engine.models.products import HAS_FBGEMM, HAS_ONEDNN, Product, packed_beside, tiled_product
from engine.models.weights.matrix import LARGEST

# With more tokens, torch's kernel for bfloat16 activations is slower than `tiled_product`. It reads
# whole vectors, beyond the end of other rows.
_FEW_TOKENS = 4
_MULTIPLE = 32
_ZERO = 128  # how FBGEMM stores 0 in a byte without a sign


def linear(values: Tensor) -> Product:
    """Return x V^T, int32 or float32 [tokens, out].

    x       float32 [tokens, in], of -127 to 127
    values  int8 [out, in]
    """

    def product(wide: Tensor) -> Tensor:
        x = wide.round().to(torch.int8)
        if not HAS_ONEDNN:  # torch would multiply in a plain loop
            return _rounded(x, values)
        if not _saturates():
            return torch._int_mm(x, values.t())
        parts = torch._int_mm(torch.cat((x.clamp(max=0), -x.clamp(min=0))), values.t())
        negative, positive = parts.tensor_split(2)
        return negative.sub_(positive)

    return product


def packed(values: Tensor) -> Product | None:
    """Return the same, float32, or None where FBGEMM is missing or saturates.

    The result does not refer to `values`.
    """
    return _packed(values) if HAS_FBGEMM and _packed_is_exact() else None


INTEGER_PRODUCTS: dict[str, Callable[[Tensor], Product | None]] = {
    "linear": linear,
    "packed": packed,
}


def _packed(values: Tensor) -> Product:
    def pack() -> object:
        ones = torch.ones(len(values), dtype=torch.double)
        zeros = torch.zeros(len(values), dtype=torch.long)
        quantized = torch._make_per_channel_quantized_tensor(values, ones, zeros, 0)
        return torch.ops.quantized.linear_prepack(quantized, None)

    kept = packed_beside(pack, values.numel())
    multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    return lambda x: multiply(x, 1.0, _ZERO, kept())


def _rounded(x: Tensor, values: Tensor) -> Tensor:
    """Return the sums rounded to bfloat16, which holds every int8 value exactly."""
    if len(x) <= _FEW_TOKENS and x.shape[1] % _MULTIPLE == 0:
        ones = torch.ones(len(values), dtype=torch.bfloat16)
        sums: Tensor = torch._weight_int8pack_mm(x.bfloat16(), values, ones)
        return sums.float()
    return tiled_product(x.float(), values).bfloat16().float()


@functools.cache
def _saturates() -> bool:
    """Return whether `_int_mm` of the largest values is wrong."""
    return not _are_exact(lambda x, values: torch._int_mm(x.to(torch.int8), values.t()))


@functools.cache
def _packed_is_exact() -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):  # torch says once that it prefers graphs
            return _are_exact(lambda x, values: _packed(values)(x))
    except RuntimeError:  # an operation that this build of torch lacks
        return False


def _are_exact(multiply: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Return whether these sums of the largest values are right, of either sign."""
    largest = torch.full((16, 64), LARGEST, dtype=torch.int8)
    x = largest.float()
    found = [multiply(sign * x[:n], largest) * sign for n in (1, 2, 16) for sign in (1, -1)]
    return all(bool((one == 64 * LARGEST**2).all()) for one in found)
