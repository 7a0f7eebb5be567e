"""Matrix products on a CPU, for weights in float32, half precision or int8; activations are float32.

The reference is one line: `F.linear(x, weight.float())`. Three things make it slow:

- For 2 to about 100 tokens MKL is up to three times as fast if the weights come first, W x^T, although
  the product is the same. Some numbers of tokens are slower than the next larger one, so x is padded.
- Converting a whole matrix to float32 writes it to memory and reads it again. Here tiles of rows are
  converted one after the other, into a buffer that stays in the CPU's cache.
- A CPU without instructions for half precision multiplies it one value at a time.

A single token is limited by reading the weights, and torch's half-precision products read them once. So
a single token's activations are rounded to the weights' type instead, as they would be on a GPU.

Measured on an AMD EPYC with AVX2, one thread, [m, 896] x [896, 9728], in milliseconds of CPU time (the
least of eight runs, in turns):

| tokens                        | 1   | 2   | 4   | 8   | 32  | 256 |
|-------------------------------|-----|-----|-----|-----|-----|-----|
| float32, F.linear             | 3.2 | 6.3 | 12  | 14  | 28  | 145 |
| float32, `product`            | 3.2 | 5.1 | 5.3 | 8.3 | 22  | 146 |
| bfloat16, F.linear            | 3.7 | 6.8 | 13  | 27  | 104 | 843 |
| bfloat16, `product`           | 3.7 | 7.2 | 7.7 | 11  | 24  | 151 |
| int8, `product`               | 4.0 | 6.1 | 6.6 | 10  | 23  | 151 |
| int8, `rounded_int8_product`  | 2.6 | 3.1 | 4.9 | -   | -   | -   |

Source: tiles that fit in a cache are the idea of Goto and van de Geijn, Anatomy of High-Performance
Matrix Multiplication, ACM TOMS 2008.
"""

import threading

import torch
from torch import Tensor
from torch.nn import functional as F

# From this many tokens on, products are limited by arithmetic, and the order of the factors no longer
# matters.
_MANY_TOKENS = 256
_TILE = 2**19  # values in a tile, 2 MB as float32; half to a whole L3 share of a core
_LARGE_TILE = 2**21  # for many tokens, each call should do more work
# Up to this many tokens, tiles of float32 weights do not pay.
_FEW_TOKENS = 8
# Numbers of tokens for which a larger one is faster.
_PADDED = {3: 4, 7: 8} | dict.fromkeys(range(11, 16), 16)
# oneDNN and torch's int8 kernel read whole vectors, beyond the end of other rows.
_INT8_MULTIPLE = 32
_INT8_TOKENS = 4

_local = threading.local()


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x W^T, float32 [tokens, out].

    x       float32 [tokens, in]
    weight  [out, in], of any floating-point type or int8
    """
    tokens, columns = x.shape
    plain = weight.dtype == torch.float32
    if plain and (tokens == 1 or tokens >= _MANY_TOKENS):
        return F.linear(x, weight)
    if tokens == 1 and weight.is_floating_point():
        return F.linear(x.to(weight.dtype), weight).float()
    if tokens >= _MANY_TOKENS:
        y = x.new_empty(tokens, len(weight))
        rows = max(1, _LARGE_TILE // columns)
        for tile, part in zip(torch.split(weight, rows), torch.split(y, rows, dim=1), strict=True):
            torch.mm(x, _widened(tile).t(), out=part)
        return y
    padded = _PADDED.get(tokens, tokens)
    if padded > tokens:
        x = F.pad(x, (0, 0, 0, padded - tokens))
    y = x.new_empty(len(weight), padded)
    rows = len(weight) if plain and padded <= _FEW_TOKENS else max(1, _TILE // columns)
    for tile, part in zip(torch.split(weight, rows), torch.split(y, rows), strict=True):
        torch.mm(_widened(tile), x.t(), out=part)
    return y[:, :tokens].t().contiguous()


def rounded_int8_product(x: Tensor, values: Tensor) -> Tensor | None:
    """Return x W^T for a few tokens, with x and the result rounded to bfloat16, or None.

    x       [tokens, in]
    values  int8 [out, in]

    torch's kernel for int8 weights is fast only with bfloat16 activations, and only for a few tokens.
    The relative error of the result is about 0.2 %, less than that of the weights; llama.cpp rounds
    activations to int8. Returns None where the kernel would not be faster than `product` or cannot be
    used.
    """
    tokens, columns = x.shape
    if tokens > _INT8_TOKENS or columns % _INT8_MULTIPLE:
        return None
    ones = torch.ones(len(values), dtype=torch.bfloat16)
    y: Tensor = torch._weight_int8pack_mm(x.bfloat16(), values, ones)
    return y.float()


def _widened(tile: Tensor) -> Tensor:
    """Return `tile` as float32, in a buffer that the next call overwrites."""
    if tile.dtype == torch.float32:
        return tile
    size = tile.numel()
    buffer: Tensor | None = getattr(_local, "buffer", None)
    if buffer is None or buffer.numel() < size:
        # A tensor made in inference mode could not be written outside of it.
        with torch.inference_mode(False):
            _local.buffer = buffer = torch.empty(size)
    return buffer[:size].view(tile.shape).copy_(tile)
