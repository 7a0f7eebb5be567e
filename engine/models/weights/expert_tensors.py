"""The stacked experts of a directory, one tensor for each expert and projection.

A directory of Gemma 4 stores gate_up_proj [experts, 2 * inner, hidden], gate before up, and down_proj
[experts, hidden, inner]. These are matrices as the engine multiplies them, so an expert's are views.

A directory of gpt-oss stores all experts of a layer together:

    gate_up_proj       [experts, hidden, 2 * inner]; the columns are gate, up, gate, up and so on
    gate_up_proj_bias  [experts, 2 * inner], in the same order
    down_proj          [experts, inner, hidden]
    down_proj_bias     [experts, hidden]

or, in MXFP4, a matrix as `_blocks` [experts, out, in / 32, 16] and `_scales` [experts, out, in / 32].
A block is 32 values of 4 bits, two in a byte with the first in the low half, and a common exponent of 8
bits. A value of 4 bits has a sign, two bits of exponent and one of fraction. The products fit bfloat16
without rounding, so that is the type in which such a tensor counts as stored.

Source: the Open Compute Project's Microscaling Formats (MX) specification 1.0; `GptOssExperts` and
`convert_moe_packed_tensors` in transformers.

Differs from transformers and vLLM on GPUs, whose kernels multiply MXFP4 weights. Here they are
converted to the model's precision as they are loaded, which takes four times the memory in bfloat16.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.models.weights.safetensors_file import StoredTensor

_STACKED = re.compile(r"(.*\.mlp\.experts)\.(gate_up|down)_proj(_bias|_blocks|)")
_PLAIN = re.compile(r"(.*layers\.\d+\.experts)\.(\w+_proj)")
_EVERY = slice(None)
_PARTS = {"gate_up": {"gate": slice(0, None, 2), "up": slice(1, None, 2)}, "down": {"down": _EVERY}}
_VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float32)
_BIAS = 127  # of the exponents


@dataclass(frozen=True, slots=True)
class ExpertTensor:
    """A matrix [out, in] or a bias [out] of one expert, with the interface of a `StoredTensor`.

    stored  the stacked tensor, or the blocks of one in MXFP4
    scales  the exponents of the blocks
    rows    the part of the stacked tensor's outputs
    """

    stored: StoredTensor
    scales: StoredTensor | None
    expert: int
    rows: slice

    @property
    def path(self) -> Path:
        """The file."""
        return self.stored.path

    @property
    def kind(self) -> str:
        """The safetensors name of the type in which `view` returns it."""
        return self.stored.kind if self.scales is None else "BF16"

    @property
    def shape(self) -> tuple[int, ...]:
        """[out, in] or [out]."""
        _, *shape = self.stored.shape
        if self.scales is not None:
            out, groups, size = shape
            shape = [out, groups * size * 2]
        elif len(shape) == 2:
            shape.reverse()
        return (len(range(shape[0])[self.rows]), *shape[1:])

    def numel(self) -> int:
        """Return the number of values."""
        return torch.Size(self.shape).numel()

    def view(self) -> Tensor:
        """Return the tensor. A matrix is a copy, so that its rows are contiguous."""
        own = self.stored.view()[self.expert]
        if self.scales is not None:
            return dequantize(own[self.rows], self.scales.view()[self.expert][self.rows])
        return own[self.rows] if own.dim() == 1 else own.t()[self.rows].contiguous()

    def release(self) -> None:
        """Drop the pages of all experts. They can be read again."""
        self.stored.release()
        if self.scales is not None:
            self.scales.release()


def dequantize(blocks: Tensor, scales: Tensor) -> Tensor:
    """Return the values of MXFP4 blocks: bfloat16 [out, in].

    blocks  uint8 [out, in / 32, 16]
    scales  uint8 [out, in / 32]
    """
    codes = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(2).int()
    values = torch.cat((_VALUES, -_VALUES))[codes]
    return torch.ldexp(values, scales[..., None].int() - _BIAS).flatten(1).bfloat16()


def split_experts(
    tensors: Mapping[str, StoredTensor],
) -> dict[str, StoredTensor | ExpertTensor]:
    """Return the tensors with a tensor for each expert in place of the stacked ones.

    The experts' names are those of Qwen3-MoE, `experts.0.gate_proj.weight` and so on.
    """
    split: dict[str, StoredTensor | ExpertTensor] = dict(tensors)
    for name, stored in tensors.items():
        if match := _PLAIN.fullmatch(name):
            split.pop(name)
            experts = range(stored.shape[0])
            split |= {f"{match[1]}.{one}.{match[2]}.weight": stored[one] for one in experts}
        if (match := _STACKED.fullmatch(name)) is None:
            continue
        prefix, projection, kind = match.groups()
        scales = tensors.get(_scales(name)) if kind == "_blocks" else None
        if not _is_stacked(stored, scales, kind):
            continue  # it will be reported as unused, or the experts as missing
        split.pop(name)
        split.pop(_scales(name), None)
        suffix = "bias" if kind == "_bias" else "weight"
        split |= {
            f"{prefix}.{expert}.{part}_proj.{suffix}": ExpertTensor(stored, scales, expert, rows)
            for part, rows in _PARTS[projection].items()
            for expert in range(stored.shape[0])
        }
    return split


def _is_stacked(stored: StoredTensor, scales: StoredTensor | None, kind: str) -> bool:
    """Return whether a tensor of this name has one of the forms above."""
    if kind != "_blocks":
        return len(stored.shape) == (2 if kind == "_bias" else 3)
    return (
        scales is not None
        and len(stored.shape) == 4
        and stored.shape == (*scales.shape, 16)
        and stored.kind == scales.kind == "U8"
    )


def _scales(name: str) -> str:
    return name.removesuffix("_blocks") + "_scales"
