"""The blocks of quantized GGUF tensors as tensors: levels of a few bits, and scales and offsets.

A row is cut into groups of 16 or 32 values with a scale each, and in some types an offset:

    weight = scale * level + offset

    Q8_0              level -128 to 127     a scale for 32 values
    Q4_0, Q5_0        level 0 to 15 or 31   the offset is the scale times -8 or -16
    Q4_1, Q5_1        level 0 to 15 or 31   an offset of its own
    Q4_K, Q5_K        level 0 to 15 or 31   a block has 8 groups, whose scales and offsets are integers
                                            of 6 bits times a factor of the block
    Q6_K              level -32 to 31       a block has 16 groups of 16, with scales of 8 bits

Source: ggml-quants.c of llama.cpp, `dequantize_row_*`.

Differs from `gguf.quants.dequantize`, which the tests compare it with: that takes two to five times as
long, and does not return the levels.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from gguf import GGMLQuantizationType as Type
from torch import Tensor


class Groups(NamedTuple):
    """Rows of a quantized matrix.

    levels   int8 or uint8 [rows, groups, values of a group]
    scales   float32 [rows, groups, 1]
    offsets  float32 [rows, groups, 1], or None for zeros
    """

    levels: Tensor
    scales: Tensor
    offsets: Tensor | None

    def dequantize(self) -> Tensor:
        """Return the weights, float32 [rows, columns]."""
        weights = self.levels * self.scales
        if self.offsets is not None:
            weights += self.offsets
        return weights.flatten(1)


def read_groups(data: Tensor, type_: Type) -> Groups:
    """Split rows of a tensor of one of READERS: `data` is uint8 [rows, bytes of a row]."""
    size, read = READERS[type_]
    return read(_split(data, -1, size))


def _q8_0(blocks: Tensor) -> Groups:
    return Groups(blocks[..., 2:].view(torch.int8), _float(blocks, 0), None)


def _q4_0(blocks: Tensor) -> Groups:
    scales = _float(blocks, 0)
    return Groups(_nibbles(blocks[..., 2:]), scales, -8 * scales)


def _q4_1(blocks: Tensor) -> Groups:
    return Groups(_nibbles(blocks[..., 4:]), _float(blocks, 0), _float(blocks, 2))


def _q5_0(blocks: Tensor) -> Groups:
    scales = _float(blocks, 0)
    return Groups(_fives(blocks[..., 2:6], blocks[..., 6:]), scales, -16 * scales)


def _q5_1(blocks: Tensor) -> Groups:
    levels = _fives(blocks[..., 4:8], blocks[..., 8:])
    return Groups(levels, _float(blocks, 0), _float(blocks, 2))


def _q4_k(blocks: Tensor) -> Groups:
    # 32 bytes hold two groups: one in the low halves of the bytes, one in the high halves.
    levels = _nibbles(_split(blocks[..., 16:], 4, 32))
    return Groups(_merged(levels, 32), *_scales_and_offsets(blocks))


def _q5_k(blocks: Tensor) -> Groups:
    levels = _nibbles(_split(blocks[..., 48:], 4, 32)).flatten(2)
    levels |= _runs(blocks[..., 16:48], 1)
    return Groups(_merged(levels, 32), *_scales_and_offsets(blocks))


def _q6_k(blocks: Tensor) -> Groups:
    # In each half of a block, 64 bytes hold four runs of 32 values, and 32 bytes their upper bits.
    levels = _nibbles(_split(blocks[..., :128], 2, 64))
    levels |= _runs(_split(blocks[..., 128:192], 2, 32), 2)
    levels = levels.view(torch.int8).sub_(32)
    scales = blocks[..., 192:208].view(torch.int8) * _float(blocks, 208)
    return Groups(_merged(levels, 16), scales.flatten(1).unsqueeze(-1), None)


# Type -> the bytes of a block, and what splits blocks, uint8 [rows, blocks, bytes].
READERS: dict[Type, tuple[int, Callable[[Tensor], Groups]]] = {
    Type.Q8_0: (34, _q8_0),
    Type.Q4_0: (18, _q4_0),
    Type.Q4_1: (20, _q4_1),
    Type.Q5_0: (22, _q5_0),
    Type.Q5_1: (24, _q5_1),
    Type.Q4_K: (144, _q4_k),
    Type.Q5_K: (176, _q5_k),
    Type.Q6_K: (210, _q6_k),
}


def _split(values: Tensor, *sizes: int) -> Tensor:
    """Return a view whose last dimension is split into these."""
    return values.view(*values.shape[:-1], *sizes)


def _float(blocks: Tensor, first: int) -> Tensor:
    """Return the float16 number at this byte of each block, float32 [rows, blocks, 1]."""
    return blocks[..., first : first + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor) -> Tensor:
    """Return the lower halves of some bytes, then their upper halves: twice the last dimension."""
    packed = packed.contiguous()  # operations on short runs of bytes are slow
    return torch.cat((packed & 15, packed >> 4), dim=-1)


def _fives(upper: Tensor, packed: Tensor) -> Tensor:
    """Return levels of 5 bits: the fifth bits are 32 bits in a row."""
    fifths = _FIFTHS.index_select(0, upper.flatten().int()).view(torch.uint8)
    return _nibbles(packed).bitwise_or_(fifths.view(*upper.shape[:-1], 32))


# A byte -> eight bytes, each with one bit of it in the fifth place; as one number of 64 bits.
_FIFTHS = ((torch.arange(256).unsqueeze(1) >> torch.arange(8) & 1) << 4).to(torch.uint8)
_FIFTHS = _FIFTHS.view(torch.int64).flatten()


def _runs(upper: Tensor, bits: int) -> Tensor:
    """Return the lowest `bits` of each byte, then the next: 8 / bits runs, moved up by four places."""
    upper, mask = upper.contiguous(), 2**bits - 1
    return torch.cat([(upper >> place & mask) << 4 for place in range(0, 8, bits)], dim=-1)


def _merged(levels: Tensor, group: int) -> Tensor:
    return _split(levels.flatten(1), -1, group)


def _scales_and_offsets(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return those of the 8 groups of each block of Q4_K or Q5_K, [rows, 8 blocks, 1]."""
    packed = _split(blocks[..., 4:16], 3, 4)
    low, middle, high = packed.unbind(-2)
    scales = torch.cat((low & 63, high & 15 | low >> 6 << 4), dim=-1) * _float(blocks, 0)
    offsets = torch.cat((middle & 63, high >> 4 | middle >> 6 << 4), dim=-1) * -_float(blocks, 2)
    return scales.flatten(1).unsqueeze(-1), offsets.flatten(1).unsqueeze(-1)
