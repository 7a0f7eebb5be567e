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
_TYPES = DTYPES | {"U8": torch.uint8}  # bytes are a part of a weight; see `expert_tensors.py`


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file that is mapped into memory.

    kind   the format's name of its type
    start  the offset of its values
    """

    path: Path
    pages: mmap.mmap
    kind: str
    shape: tuple[int, ...]
    start: int

    def numel(self) -> int:
        """Return the number of values."""
        return math.prod(self.shape)

    def __getitem__(self, index: int) -> "StoredTensor":
        """Return one matrix of a stack of matrices, such as the one of an expert."""
        shape = self.shape[1:]
        start = self.start + index * math.prod(shape) * DTYPES[self.kind].itemsize
        return StoredTensor(self.path, self.pages, self.kind, shape, start)

    def view(self) -> Tensor:
        """Return the tensor, of a kind in DTYPES or bytes, as a view of the file's pages."""
        values = torch.frombuffer(
            self.pages, dtype=_TYPES[self.kind], count=self.numel(), offset=self.start
        )
        return values.view(self.shape)

    def release(self) -> None:
        """Drop the pages of the tensor from this process's memory. They can be read again."""
        size, stop = mmap.PAGESIZE, self.start + self.numel() * _TYPES[self.kind].itemsize
        first, last = -(-self.start // size), stop // size  # whole pages
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self.pages.madvise(mmap.MADV_DONTNEED, first * size, (last - first) * size)


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a file by name. Raises SafetensorError or OSError if it is damaged."""
    with safe_open(path, framework="pt"):  # checks the header and the file's length
        pass
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        # Writable for torch, which has no read-only tensors; a write would not reach the file.
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        start = 8 + length + entry["data_offsets"][0]
        tensors[name] = StoredTensor(path, pages, entry["dtype"], tuple(entry["shape"]), start)
    return tensors
