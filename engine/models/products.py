"""Matrix products on a CPU, x W^T + b, in several ways that give the same result.

Which one is the fastest depends on the CPU, on the shape and on the number of tokens, so
`kernels.py` measures them. The reference is the first, `F.linear`.

    linear         torch's own product. With weights in half precision and activations in float32, the
                   activations are rounded to the weights' type, as they would be on a GPU
    weights-first  W x^T, which MKL may compute several times as fast for 2 to about 100 tokens
    tiles          the same for weights in half precision, of which one tile of rows after the other is
                   converted to float32. The buffer stays in the CPU's cache, whereas a whole matrix
                   would be written to memory and read again. The product is exact
    packed         oneDNN's product, which ships with torch and which torch.compile uses. It needs the
                   weights in a layout of its own, in which each core reads memory in order
    half           FBGEMM's product, which ships with torch, too: the weights are kept as float16, in
                   a layout of its own, and each is converted to float32 in a register where it is
                   multiplied. Products of a few tokens are limited by reading the weights, and these
                   are half of float32's. It is exact, and exists if float16 holds the weights, as
                   those of a checkpoint in half precision, whatever the model's own

Sources: tiles that fit in a cache are the idea of Goto and van de Geijn, Anatomy of High-Performance
Matrix Multiplication, ACM TOMS 2008; the packed product is what `torch/_inductor/fx_passes/
mkldnn_fusion.py` calls. Khudia et al., FBGEMM, arXiv:2101.05615.
"""

import math
import os
import platform
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import repeat
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

T = TypeVar("T")
Product = Callable[
    [Tensor], Tensor
]  # [tokens, in] -> [tokens, out], in the type of the activations

# From this many tokens on, products are limited by arithmetic, and the order of the factors no longer
# matters.
_MANY_TOKENS = 256
_TILE = 2**19  # values in a tile, 2 MB as float32; half to a whole L3 share of a core
_LARGE_TILE = 2**21  # for many tokens, each call should do more work
# Numbers of tokens with which MKL is faster after so many more if the weights come first.
_PADDING = {3: 1, 7: 1, 11: 5, 12: 4, 13: 3, 14: 2, 15: 1}
# oneDNN compiles code for each number of tokens, so large ones are padded to a multiple.
_FEW_TOKENS, _MULTIPLE = 32, 8

HAS_ONEDNN = (
    platform.machine() in ("x86_64", "AMD64") and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
)
# These operations are not part of torch's public interface.
_CAN_PACK = (
    HAS_ONEDNN
    and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
HAS_FBGEMM = "fbgemm" in torch.backends.quantized.supported_engines
_fbgemm = torch.ops.quantized
_HALF_BITS = 15  # the largest weight is scaled to less than 2^15, and float16 ends at 2^16
_LARGEST_SHIFT = 100  # 2^100 is a float32, whatever it multiplies
_TOO_FINE = 0x1FFF  # the bits of float32's 23 that float16 lacks
_CHUNK = 2**18

_local = threading.local()
_packing = threading.BoundedSemaphore(os.cpu_count() or 1)


def linear(weight: Tensor, bias: Tensor | None, activations: torch.dtype) -> Product:
    """Return torch's own product."""
    if weight.dtype == activations:
        return partial(F.linear, weight=weight, bias=bias)
    rounded_bias = None if bias is None else bias.to(weight.dtype)
    return lambda x: F.linear(x.to(weight.dtype), weight, rounded_bias).to(activations)


def weights_first(weight: Tensor, bias: Tensor | None, activations: torch.dtype) -> Product | None:
    """Return the product W x^T, or None if the activations have another type."""
    if weight.dtype != activations:
        return None

    def product(x: Tensor) -> Tensor:
        tokens = len(x)
        if padding := _PADDING.get(tokens):
            x = F.pad(x, (0, 0, 0, padding))
        y = torch.mm(weight, x.t())[:, :tokens].t().contiguous()
        return y if bias is None else y.add_(bias)

    return product


def tiles(weight: Tensor, bias: Tensor | None, activations: torch.dtype) -> Product | None:
    """Return the product in tiles, or None unless the weights have to be converted to float32."""
    if activations != torch.float32 or weight.dtype == torch.float32:
        return None

    def product(x: Tensor) -> Tensor:
        y = tiled_product(x, weight)
        return y if bias is None else y.add_(bias)

    return product


def tiled_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x W^T, float32 [tokens, out].

    x       float32 [tokens, in]
    weight  [out, in], in half precision or int8
    """
    tokens, columns = x.shape
    if tokens >= _MANY_TOKENS:
        y = x.new_empty(tokens, len(weight))
        rows = max(1, _LARGE_TILE // columns)
        for tile, part in zip(torch.split(weight, rows), torch.split(y, rows, dim=1), strict=True):
            torch.mm(x, _widened(tile).t(), out=part)
        return y
    if padding := _PADDING.get(tokens):
        x = F.pad(x, (0, 0, 0, padding))
    y = x.new_empty(len(weight), len(x))
    rows = max(1, _TILE // columns)
    for tile, part in zip(torch.split(weight, rows), torch.split(y, rows), strict=True):
        torch.mm(_widened(tile), x.t(), out=part)
    return y[:, :tokens].t().contiguous()


def packed(weight: Tensor, bias: Tensor | None, activations: torch.dtype) -> Product | None:
    """Return the product with packed weights, or None where oneDNN cannot pack them.

    The result does not refer to `weight`, so the unpacked weights can be freed.
    """
    if not _CAN_PACK or weight.dtype not in (torch.float32, torch.bfloat16):
        return None
    dtype, multiply = weight.dtype, torch.ops.mkldnn._linear_pointwise
    try:
        weights = torch.ops.mkldnn._reorder_linear_weight(weight, _FEW_TOKENS)
    except RuntimeError:  # bfloat16 needs AVX-512 or instructions of its own
        return None
    own_bias = None if bias is None else bias.to(dtype)

    def product(x: Tensor) -> Tensor:
        tokens = len(x)
        padding = -tokens % _MULTIPLE if tokens > _FEW_TOKENS else 0
        if padding:
            x = F.pad(x, (0, 0, 0, padding))
        y: Tensor = multiply(x.to(dtype), weights, own_bias, "none", [], "")
        return (y[:tokens] if padding else y).to(activations)

    return product


def half(weight: Tensor, bias: Tensor | None, activations: torch.dtype) -> Product | None:
    """Return the product with weights in float16, or None where FBGEMM or float16 lacks them.

    bfloat16 has more exponents than float16. So the weights are multiplied by a power of two, by which
    the result is divided. Values of less than 2^-32 of the largest may then be rounded, by 2^-39 of it
    at most, whereas float32 rounds a product by 2^-24. The result does not refer to `weight`.
    """
    shift = _half_shift(weight) if HAS_FBGEMM else None
    if shift is None:
        return None
    scale = 2.0**shift
    pack, multiply = _fbgemm.linear_prepack_fp16, _fbgemm.linear_dynamic_fp16
    kept = packed_beside(lambda: pack(weight.float() * scale, None), weight.numel())
    own_bias = None if bias is None else bias.float()

    def product(x: Tensor) -> Tensor:
        y: Tensor = multiply(x.float().contiguous(), kept())
        if shift:
            y.div_(scale)
        if own_bias is not None:
            y.add_(own_bias)
        return y.to(activations)

    return product


def _half_shift(weight: Tensor) -> int | None:
    """Return the power of two by which weights fit in float16, 0 if they do as they are, or None."""
    if weight.dtype == torch.float16:
        return 0
    largest = max(abs(float(end)) for end in torch.aminmax(weight))
    shift = _HALF_BITS - math.frexp(largest)[1]
    if not math.isfinite(largest) or shift > _LARGEST_SHIFT:
        return 0 if largest == 0 else None
    if weight.dtype == torch.float32:
        bits = torch.split(weight.flatten().view(torch.int32), _CHUNK)  # stays in the cache
        if any(bool((chunk & _TOO_FINE).any()) for chunk in bits):
            return None
    if weight.numel() <= _CHUNK and torch.equal(weight.half().float(), weight.float()):
        return 0  # a small product is faster without a division
    return shift


def packed_beside(pack: Callable[[], T], values: int) -> Callable[[], T]:
    """Return what gives the result of `pack`; a large matrix is packed in a thread of its own.

    FBGEMM packs 100 to 250 million values a second. Loading goes on meanwhile, with as many matrices on
    the way as there are cores, so that few weights are in memory twice.
    """
    if values <= _CHUNK:
        return repeat(pack()).__next__
    future = Future[T]()

    def run() -> None:
        try:
            future.set_result(pack())
        except BaseException as error:
            future.set_exception(error)  # raised where the result is used
        finally:
            _packing.release()

    _packing.acquire()
    threading.Thread(target=run).start()
    return future.result


PRODUCTS: dict[str, Callable[[Tensor, Tensor | None, torch.dtype], Product | None]] = {
    "linear": linear,
    "weights-first": weights_first,
    "tiles": tiles,
    "packed": packed,
    "half": half,
}


def _widened(tile: Tensor) -> Tensor:
    """Return `tile` as float32, in a buffer that the next call overwrites."""
    size = tile.numel()
    buffer: Tensor | None = getattr(_local, "buffer", None)
    if buffer is None or buffer.numel() < size:
        # A tensor made in inference mode could not be written outside of it.
        with torch.inference_mode(False):
            _local.buffer = buffer = torch.empty(size)
    return buffer[:size].view(tile.shape).copy_(tile)
