"""Products with quantized matrices. For int8: int8 activations times int8 weights, summed as integers.

The activations of each token are rounded to 127 steps on either side of 0, with a step of their own:

    x     = steps[:, None] * q                      q  int8 [tokens, in]
    W     = scales[:, None] * values                values  int8 [out, in]
    x W^T = steps[:, None] * scales * (q values^T)

The sums are integers, so they are exact and depend neither on the order of the additions nor on the
kernel. A token's result therefore has the same bits whatever shares its batch, on any x86 machine.

Processors with instructions for int8 products (VNNI; Intel since Ice Lake, AMD since Zen 4) multiply
four pairs of bytes at once. Older ones add two products in 16 bits and saturate: oneDNN, which computes
`torch._int_mm`, adds 128 to q first, and 2 * 255 * 127 does not fit in 16 bits. It fits if q <= 0, so q
is split into a row of its negative and a row of its positive values there; a single token still reads
the weights once. A product of the largest values finds out which of the two the machine needs.

Without oneDNN, on ARM, the same integers are multiplied as floating-point numbers, and the sums are
rounded to bfloat16 (a relative error of 0.2 %), because torch's kernel for a few tokens does so.

A product with an `Int4Matrix` is torch's own, whatever the number of tokens. An int8 product of the
same weights would be faster from 8 tokens on, but its results differ, and a token's result would depend
on its batch.

Rounding activations and weights to int8 changes a product of random values by 1.1 % (root mean square,
rows of 896 values; 1.0 % with 256 and 1.2 % with 4,864), rounding weights alone by 0.8 %. Measured on
an AMD EPYC (Zen 4), one thread, [m, 896] x [896, 9728], in milliseconds of CPU time; "split" is the
same machine limited to AVX2:

| tokens                                  | 1    | 2    | 4    | 8    | 32   | 256  |
|-----------------------------------------|------|------|------|------|------|------|
| float32 activations                     | 1.5  | 2.7  | 3.0  | 5.0  | 7.9  | 54   |
| bfloat16 activations, torch's kernel    | 1.3  | 1.5  | 1.7  | 3.0  | -    | -    |
| int8 activations                        | 1.0  | 1.2  | 1.4  | 1.6  | 2.5  | 11   |
| int8 activations, split                 | 1.8  | 1.9  | 2.2  | 3.0  | 7.2  | 43   |
| bfloat16 activations, int4 weights      | 0.5  | 0.6  | 0.8  | 1.6  | 6.6  | 52   |

Source: dynamic quantization per token, as in LLM.int8(), arXiv:2208.07339, without its outliers, and in
vLLM's `W8A8`. llama.cpp rounds activations to int8, too, with a step for every 32 of them.
"""

import functools

import torch
from torch import Tensor

from engine.models.products import HAS_ONEDNN, tiled_product
from engine.models.weights.int4_matrix import GROUP, Int4Matrix
from engine.models.weights.matrix import LARGEST, Int8Matrix, MixedMatrix

# With more tokens, torch's kernel for bfloat16 activations is slower than `tiled_product`. It reads
# whole vectors, beyond the end of other rows.
_FEW_TOKENS = 4
_MULTIPLE = 32


def quantized_product(
    x: Tensor, weight: Int8Matrix | Int4Matrix | MixedMatrix, bias: Tensor | None = None
) -> Tensor:
    """Return x W^T + b in the precision of `x`: [tokens, out].

    x     [tokens, in], of any floating-point type
    bias  [out] or None
    """
    if isinstance(weight, Int8Matrix):
        y = _int8_product(x, weight)
    elif isinstance(weight, Int4Matrix):
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.bfloat16(), weight.packed, GROUP, weight.scales
        ).to(x.dtype)
    else:
        y = torch.cat([quantized_product(x, part) for part in weight.parts], dim=1)
    return y if bias is None else y.add_(bias)


def _int8_product(x: Tensor, weight: Int8Matrix) -> Tensor:
    wide = x.float()
    # A token of zeros has the smallest step instead of 0, and stays a token of zeros.
    steps = wide.abs().amax(dim=1, keepdim=True).div_(LARGEST).clamp_(min=torch.finfo().tiny)
    rounded = (wide / steps).round_().to(torch.int8)
    return (_sums(rounded, weight.values) * weight.scales).mul_(steps).to(x.dtype)


def _sums(x: Tensor, values: Tensor) -> Tensor:
    """Return x V^T, int32 or float32 [tokens, out], of int8 `x` [tokens, in] and `values` [out, in]."""
    if not HAS_ONEDNN:  # torch would multiply in a plain loop
        return _rounded_sums(x, values)
    if not _saturates():
        return torch._int_mm(x, values.t())
    parts = torch._int_mm(torch.cat((x.clamp(max=0), -x.clamp(min=0))), values.t())
    negative, positive = parts.tensor_split(2)
    return negative.sub_(positive)


def _rounded_sums(x: Tensor, values: Tensor) -> Tensor:
    """Return `_sums` rounded to bfloat16, which holds every int8 value exactly."""
    if len(x) <= _FEW_TOKENS and x.shape[1] % _MULTIPLE == 0:
        ones = torch.ones(len(values), dtype=torch.bfloat16)
        sums: Tensor = torch._weight_int8pack_mm(x.bfloat16(), values, ones)
        return sums.float()
    return tiled_product(x.float(), values).bfloat16().float()


@functools.cache
def _saturates() -> bool:
    """Return whether an integer product of the largest values is wrong."""
    largest = torch.full((16, 64), LARGEST, dtype=torch.int8)
    products = [torch._int_mm(largest[:tokens], largest.t()) for tokens in (1, 2, 16)]
    return any((found != 64 * LARGEST**2).any() for found in products)
