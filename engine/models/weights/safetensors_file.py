"""A safetensors file, mapped into memory: a tensor is a view of the file's pages and not a copy.

A view that is used as it is costs no memory of the process's own: the kernel may drop its pages and
read them again, and processes that serve the same file share them. A tensor that is copied or converted
leaves pages behind; `release` drops them at once, so that the process never holds the weights twice.

The format: the length of the header in 8 bytes, the header in JSON, the values
(https://github.com/huggingface/safetensors).

Differs from `safetensors.safe_open`, which maps files, too, but cannot drop pages.
"""

import json
import math
import mmap
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

# The types in which weights may be stored; quantized files have others.
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file; `start` is the offset of its values, and `dtype` the format's name."""

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def numel(self) -> int:
        """The number of values."""
        return math.prod(self.shape)


class SafetensorsFile:
    """The tensors of a file by name. Raises SafetensorError or OSError if the file is damaged."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, framework="pt"):  # checks the header and the file's length
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            # Writable for torch, which has no read-only tensors; a write would not reach the file.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.tensors = {
            name: StoredTensor(
                entry["dtype"], tuple(entry["shape"]), 8 + length + entry["data_offsets"][0]
            )
            for name, entry in header.items()
            if name != "__metadata__"
        }

    def view(self, name: str) -> Tensor:
        """Return a tensor whose type is in DTYPES as a view of the file's pages."""
        tensor = self.tensors[name]
        values = torch.frombuffer(
            self._map, dtype=DTYPES[tensor.dtype], count=tensor.numel, offset=tensor.start
        )
        return values.view(tensor.shape)

    def release(self, name: str) -> None:
        """Drop the pages of a tensor from this process's memory. They can be read again."""
        tensor = self.tensors[name]
        stop = tensor.start + tensor.numel * DTYPES[tensor.dtype].itemsize
        first, last = -(-tensor.start // mmap.PAGESIZE), stop // mmap.PAGESIZE  # whole pages
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            size = mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first * size, (last - first) * size)
