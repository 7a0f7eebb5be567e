"""A weight matrix as the model holds it: a plain tensor, int8 values with a scale per row, or int4.

A decode step is limited by reading the weights, and int8 weights are a quarter of the bytes of float32.
`engine/models/quantized.py` multiplies by them.

Source: symmetric quantization per output channel, as of the weights in vLLM's `W8A8`.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from engine.core.compute.device import CPU
from engine.models.weights.int4_matrix import Int4Matrix

LARGEST = 127  # -128 is not used, so that the range is symmetric


@dataclass(frozen=True, slots=True, eq=False)
class Int8Matrix:
    """The matrix `values * scales[:, None]`, [out, in].

    values  int8 [out, in]
    scales  float32 [out]
    dtype   the model's precision, in which rows are returned
    """

    values: Tensor
    scales: Tensor
    dtype: torch.dtype

    @classmethod
    def quantize(cls, weight: Tensor, dtype: torch.dtype) -> "Int8Matrix":
        """Round `weight` [out, in] to 127 steps on either side of 0, per row."""
        matrix = cls.empty(*weight.shape, dtype=dtype, device=weight.device)
        matrix[:] = weight
        return matrix

    @classmethod
    def empty(
        cls, rows: int, columns: int, *, dtype: torch.dtype, device: torch.device = CPU
    ) -> "Int8Matrix":
        """Allocate a matrix whose rows are still to be filled."""
        values = torch.empty(rows, columns, dtype=torch.int8, device=device)
        return cls(values, torch.empty(rows, device=device), dtype)

    def __getitem__(self, rows: slice) -> "Int8Matrix":
        """Return these rows; they share memory with the matrix."""
        return Int8Matrix(self.values[rows], self.scales[rows], self.dtype)

    def __setitem__(self, rows: slice, weight: Tensor) -> None:
        """Quantize `weight` [n, in] into these rows."""
        wide = weight.float()
        scales = wide.abs().amax(dim=1) / LARGEST
        steps = scales.where(scales > 0, 1)  # a row of zeros stays one
        self.values[rows] = (wide / steps[:, None]).round_()
        self.scales[rows] = scales

    @property
    def shape(self) -> torch.Size:
        """[out, in]"""
        return self.values.shape

    def numel(self) -> int:
        """Return the number of parameters."""
        return self.values.numel()

    @property
    def nbytes(self) -> int:
        """The bytes of values and scales."""
        return self.values.nbytes + self.scales.nbytes

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Scales, then values."""
        return self.scales, self.values

    def rows(self, indices: Tensor) -> Tensor:
        """Return rows [*indices.shape, in], dequantized to `dtype`."""
        return (self.values[indices] * self.scales[indices].unsqueeze(-1)).to(self.dtype)

    def dequantize(self) -> Tensor:
        """Return the whole matrix in `dtype`."""
        return (self.values * self.scales[:, None]).to(self.dtype)


class RowLookup(Protocol):
    """A matrix of which single rows can be read, as an embedding needs them."""

    def rows(self, indices: Tensor) -> Tensor:
        """Return these rows: [indices, columns], in the model's precision."""


@dataclass(frozen=True, slots=True, eq=False)
class MixedMatrix:
    """Matrices of different kinds, one below the other: [sum of rows, in].

    A file may store queries and keys in 4 bits and values in 6.
    """

    parts: tuple[Int8Matrix | Int4Matrix, ...]

    def numel(self) -> int:
        """Return the number of parameters."""
        return sum(part.numel() for part in self.parts)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those of all parts."""
        return tuple(tensor for part in self.parts for tensor in part.tensors)


# A mixed one is only multiplied by; everything else has its parts.
Stored: TypeAlias = Tensor | Int8Matrix | Int4Matrix
Matrix: TypeAlias = Stored | MixedMatrix


def has_int8_kernel(device: torch.device) -> bool:
    """Return whether torch multiplies by int8 weights on this device with a kernel of its own."""
    return device.type == "cpu" and hasattr(torch.ops.aten, "_weight_int8pack_mm")


def equal(one: Matrix, other: Matrix) -> bool:
    """Return whether two matrices are of the same kind and hold the same values."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    return type(one) is type(other) and all(map(torch.equal, one.tensors, other.tensors))
