"""A weight matrix in 4 bits per value, with a scale and an offset for every 32 values of a row.

    W = scale * (level - 8) + offset        level 0 to 15

The blocks of Q4_0, Q4_1 and Q4_K in GGUF files have this form, so their values are kept: the levels
exactly, scales and offsets as bfloat16. A weight takes 5 bits, a fifth more than in such a file.

The product is torch's own (`_weight_int4pack_mm_for_cpu`), with activations and results in bfloat16. It
computes each row of the result by itself, so a token's result does not depend on its batch. It has
vector instructions for AVX2 and AVX-512; elsewhere a plain loop would take 30 times as long, and the
matrix becomes an `Int8Matrix`.

Differs from llama.cpp, which rounds activations to int8. torch's kernel multiplies floating-point
numbers: it is faster than int8 products for one or two tokens, because it reads half of the bytes, and
takes three to five times as long for a long prompt. torchao has an int8 kernel for such weights, but
its published packages (0.18) do not contain it for CPUs.
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.weights.gguf_blocks import Groups

GROUP = 32
ROWS = 64  # that torch packs together: a part of a matrix has a multiple of them
_MIDDLE = 8  # the kernel subtracts it from a level


@dataclass(frozen=True, slots=True, eq=False)
class Int4Matrix:
    """A matrix [out, in] in torch's layout.

    packed  uint8 [out, in / 2], in an order that depends on the CPU
    scales  bfloat16 [in / 32, out, 2]: scale and offset
    """

    packed: Tensor
    scales: Tensor

    @classmethod
    def empty(cls, rows: int, columns: int) -> "Int4Matrix":
        """Allocate a matrix whose rows are still to be filled."""
        packed = torch.empty(rows, columns // 2, dtype=torch.uint8)
        return cls(packed, torch.empty(columns // GROUP, rows, 2, dtype=torch.bfloat16))

    def fill(self, rows: slice, groups: Groups) -> None:
        """Set these rows, whose first is a multiple of ROWS. The levels of `groups` are 0 to 15."""
        levels, block = groups.levels.flatten(1), _packed_rows()
        self.packed[rows] = _packed(levels, block) if block else _torch_packed(levels)
        offsets = _MIDDLE * groups.scales
        if groups.offsets is not None:
            offsets += groups.offsets
        self.scales[:, rows] = torch.cat((groups.scales, offsets), dim=-1).transpose(0, 1)

    def __getitem__(self, rows: slice) -> "Int4Matrix":
        """Return these rows, whose first is a multiple of ROWS; they share memory with the matrix."""
        return Int4Matrix(self.packed[rows], self.scales[:, rows])

    @property
    def shape(self) -> torch.Size:
        """[out, in]"""
        rows, pairs = self.packed.shape
        return torch.Size((rows, 2 * pairs))

    def numel(self) -> int:
        """Return the number of parameters."""
        return self.shape.numel()

    @property
    def nbytes(self) -> int:
        """The bytes of levels, scales and offsets."""
        return self.packed.nbytes + self.scales.nbytes

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Scales, then packed levels."""
        return self.scales, self.packed


def _torch_packed(levels: Tensor) -> Tensor:
    """Return uint8 `levels` [rows, columns] in the layout of torch's kernel, [rows, columns / 2]."""
    packed: Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.int(), 1)
    return packed


def _packed(levels: Tensor, block: int) -> Tensor:
    """Return `_torch_packed` in a tenth of the time, where torch packs this many rows together.

    A byte has a level of the first half of the rows and one of the second; the bytes of a column are
    neighbours.
    """
    first, second = levels.view(-1, 2, block // 2, levels.shape[1]).unbind(1)
    return (first | second << 4).transpose(1, 2).reshape(len(levels), -1)


@functools.cache
def _packed_rows() -> int:
    """Return how many rows torch packs together on this CPU, or 0 if its layout is another one."""
    levels = torch.randint(16, (ROWS, GROUP), generator=torch.Generator()).to(torch.uint8)
    wanted = _torch_packed(levels)
    return next((block for block in (64, 32) if _packed(levels, block).equal(wanted)), 0)


def int4_bytes(numel: int) -> int:
    """Return the `nbytes` of a matrix with this many weights."""
    return numel // 2 + numel // GROUP * 2 * torch.bfloat16.itemsize


def has_int4_kernel(device: torch.device) -> bool:
    """Return whether torch multiplies by such a matrix with vector instructions of this device."""
    vectors = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    return (
        vectors
        and device.type == "cpu"
        and hasattr(torch.ops.aten, "_convert_weight_to_int4pack_for_cpu")
        and hasattr(torch.ops.aten, "_weight_int4pack_mm_for_cpu")
    )
