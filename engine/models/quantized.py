"""Products with quantized matrices. For int8: int8 activations times int8 weights, summed as integers.

The activations of each token are rounded to 127 steps on either side of 0, with a step of their own:

    x     = steps[:, None] * q                      q  int8 [tokens, in]
    W     = scales[:, None] * values                values  int8 [out, in]
    x W^T = steps[:, None] * scales * (q values^T)

The sums are integers, so they are exact and depend neither on the order of the additions nor on the
kernel (`integer_products.py`). A token's result therefore has the same bits whatever shares its batch,
on any x86 machine.

A product with an `Int4Matrix` is torch's own, whatever the number of tokens. An int8 product of the
same weights would be faster from 8 tokens on, but its results differ, and a token's result would depend
on its batch.

Rounding activations and weights to int8 changes a product of random values by 1.1 % (root mean square,
rows of 896 values; 1.0 % with 256 and 1.2 % with 4,864), rounding weights alone by 0.8 %. A product
with an `Int4Matrix` on an AMD EPYC (Zen 4), one thread, [m, 896] x [896, 9728], takes 0.5 ms for 1
token, 1.6 for 8, 6.6 for 32 and 52 for 256.

Source: dynamic quantization per token, as in LLM.int8(), arXiv:2208.07339, without its outliers, and in
vLLM's `W8A8`. llama.cpp rounds activations to int8, too, with a step for every 32 of them.
"""

import torch
from torch import Tensor

from engine.models.kernels import choose, kernel_index
from engine.models.products import Product
from engine.models.weights.int4_matrix import GROUP, Int4Matrix
from engine.models.weights.matrix import LARGEST, Int8Matrix, MixedMatrix


def quantized_product(
    weight: Int8Matrix | Int4Matrix | MixedMatrix,
    bias: Tensor | None = None,
    *,
    few_tokens: bool = False,
    may_replace: bool = True,
) -> Product:
    """Return the product x W^T + b, [tokens, in] -> [tokens, out], in the precision of `x`.

    bias                     [out] or None
    few_tokens, may_replace  as in `kernels.choose`
    """
    if isinstance(weight, Int8Matrix):
        product = _int8_product(weight, few_tokens=few_tokens, may_replace=may_replace)
    elif isinstance(weight, Int4Matrix):
        product = _int4_product(weight)
    else:
        parts = [
            quantized_product(part, few_tokens=few_tokens, may_replace=may_replace)
            for part in weight.parts
        ]
        product = lambda x: torch.cat([part(x) for part in parts], dim=1)  # noqa: E731
    return product if bias is None else lambda x: product(x).add_(bias)


def _int8_product(weight: Int8Matrix, *, few_tokens: bool, may_replace: bool) -> Product:
    sums = choose(weight.values, None, few_tokens=few_tokens, may_replace=may_replace).products
    scales = weight.scales

    def product(x: Tensor) -> Tensor:
        wide = x.float()
        # A token of zeros has the smallest step instead of 0, and stays a token of zeros.
        steps = wide.abs().amax(dim=1, keepdim=True).div_(LARGEST).clamp_(min=torch.finfo().tiny)
        return (sums[kernel_index(len(x))](wide / steps) * scales).mul_(steps).to(x.dtype)

    return product


def _int4_product(weight: Int4Matrix) -> Product:
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
    return lambda x: multiply(x.bfloat16(), weight.packed, GROUP, weight.scales).to(x.dtype)
