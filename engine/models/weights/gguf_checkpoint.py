"""A GGUF file as a checkpoint: llama.cpp's single file with configuration, weights and tokenizer.

Configuration and weights are translated into the form of config.json and safetensors, and then checked
and used like any others. `engine/models/text/gguf_tokenizer.py` reads the tokenizer.

Quantized matrices are converted once, a few rows at a time, as they are loaded. Matrices in 4 bits stay
in 4 bits where torch has a kernel for them (`Int4Matrix`). Others are rounded to int8 with a scale per
row (`Int8Matrix`), or dequantized to the model's precision on a GPU. So loading takes little more
memory than the result (`python -m benchmarks loading`).

Why one scale per row, though a file has one for every 32 values or fewer: that is what an integer
product needs, and little is lost. In random models (Qwen3, one layer, rows of 256 values), the logits
differ by this from those of the same file dequantized to float32 (root mean square, as a share of the
logits' spread), and the float32 logits by this from the model before it was quantized:

                    Q8_0    Q6_K    Q5_K_M  Q4_K_M  Q4_0    Q2_K
    all in int8     0.041   0.040   0.043   0.045   0.041   0.050
    int4 and int8                           0.033   0.021
    llama.cpp       0.025   0.033   0.031   0.031   0.025   0.031
    quantization    0.025   0.087   0.177   0.309   0.430   0.954

Real weights have more outliers than random ones, and a row with a large one has larger steps.

Differs from llama.cpp, which computes with the blocks of the file and rounds activations to 8 bits.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES
from torch import Tensor

from engine.models.config_file import parse_config
from engine.models.recurrent import reject_recurrent_file
from engine.models.weights.checkpoint import Checkpoint, CheckpointError
from engine.models.weights.gguf_architectures import (
    ROPE_FACTORS,
    config_entries,
    find_architecture,
    hf_tensors,
)
from engine.models.weights.gguf_blocks import READERS, read_groups
from engine.models.weights.gguf_file import GGUFError, GGUFFile, TensorInfo
from engine.models.weights.int4_matrix import ROWS, Int4Matrix, has_int4_kernel, int4_bytes
from engine.models.weights.matrix import (
    Int8Matrix,
    Matrix,
    MixedMatrix,
    RowLookup,
    Stored,
    has_int8_kernel,
)

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_CHUNK = 2**18  # values that are converted at once
_MAX_THREADS = 8
_INT4 = (GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q4_K)


class GGUFCheckpoint(Checkpoint):
    """The weights of a GGUF file under transformers' names, and its configuration as `config`.

    file  the opened file, with its metadata
    int8  keep quantized matrices in int8 where the device has a kernel for it; otherwise they are
          dequantized to `dtype`
    int4  keep matrices that are stored in 4 bits that way where the device has a kernel for it

    Raises CheckpointError for a damaged file, a type that the `gguf` package cannot dequantize, or an
    architecture that is not in ARCHITECTURES.
    """

    _configuration = "the file's weights and its metadata"
    int8 = True
    int4 = True

    def _open(self) -> dict[str, Any]:
        try:
            self.file = GGUFFile(self.directory)
        except GGUFError as error:
            raise CheckpointError(str(error)) from error
        # Operations on a chunk release Python's lock. torch's own threads would wait for each other
        # after each of them.
        workers = max(1, min(os.cpu_count() or 1, _MAX_THREADS) // torch.get_num_threads())
        self._threads = ThreadPoolExecutor(workers)
        # glibc keeps what was freed up to twice the largest block, so that chunks reuse their memory.
        torch.empty(16 * _CHUNK, dtype=torch.uint8)
        fields, tensors = self.file.fields, dict(self.file.tensors)
        try:
            reject_recurrent_file(fields, tensors)
            _check_types(tensors)
            self._architecture = find_architecture(fields)
            factors = {
                entry: _rope_factors(name, tensors.pop(name))
                for name, entry in ROPE_FACTORS.items()
                if name in tensors
            }
            self.config = parse_config(config_entries(fields, tensors, factors))
        except CheckpointError as error:
            raise CheckpointError(f"{self.directory}: {error}") from error
        return hf_tensors(self._architecture, tensors)

    def _dtype_of(self, tensor: TensorInfo) -> torch.dtype:
        """Count a quantized tensor as bfloat16, which loses nothing of values with 8 bits or fewer."""
        return _PLAIN.get(tensor.type.name, torch.bfloat16)

    def _where(self, name: str) -> Path:
        return self.directory

    def weight_bytes(self) -> int:
        """Return the bytes that the weights will take in memory, from the file's header alone."""
        total = 0
        for name, tensor in self._tensors.items():
            if len(tensor.shape) == 2 and self.stays_int4(name):
                total += int4_bytes(tensor.numel())
            elif len(tensor.shape) == 2 and self._becomes_int8(tensor):
                total += tensor.numel() + tensor.shape[0] * torch.float32.itemsize
            else:
                total += tensor.numel() * self.dtype.itemsize
        return total

    @property
    def is_quantized(self) -> bool:
        """Whether weights are stored in fewer than 16 bits."""
        return any(_is_quantized(tensor) for tensor in self._tensors.values())

    def release(self, name: str) -> None:
        """Drop the pages of the file."""
        self.file.release()

    def load_matrix(self, rows: Mapping[str, int], columns: int) -> Matrix:
        """Load matrices and stack them: [sum of `rows`, columns].

        If all of them are quantized and the device has a kernel, the result is an Int8Matrix, an
        Int4Matrix or, where their types differ, a MixedMatrix.
        """
        tensors = {name: self._find(name, count, columns) for name, count in rows.items()}
        if not any(_is_quantized(tensor) for tensor in tensors.values()):
            return super().load_matrix(rows, columns)
        if not all(self._becomes_int8(tensor) for tensor in tensors.values()):
            whole = torch.empty(sum(rows.values()), columns, dtype=self.dtype, device=self.device)
            self._fill(whole, rows)
            return whole
        parts: list[Int8Matrix | Int4Matrix] = []
        for int4, names in groupby(rows, self.stays_int4):
            group = {name: rows[name] for name in names}
            count = sum(group.values())
            if int4:
                parts.append(Int4Matrix.empty(count, columns))
            else:
                parts.append(Int8Matrix.empty(count, columns, dtype=self.dtype))
            self._fill(parts[-1], group)
        return parts[0] if len(parts) == 1 else MixedMatrix(tuple(parts))

    def _fill(self, matrix: Stored, rows: Mapping[str, int]) -> None:
        """Convert these tensors into the rows of a matrix, one below the other."""
        first = 0
        for name, count in rows.items():
            whole, kind = matrix[first : first + count], self._tensors[name].type
            each = partial(_convert, whole, kind)
            for _ in self._threads.map(each, *zip(*self._chunks(name), strict=True)):
                pass  # raises what a thread raised
            self._register(name, whole)
            first += count
        self.file.release()

    def stored_rows(self, name: str) -> Tensor | RowLookup | None:
        """Return the matrix as it is stored; see `Checkpoint`. Its rows are not rounded to int8."""
        tensor = self._tensors[name]
        if not _is_quantized(tensor):
            return super().stored_rows(name)
        if not self._becomes_int8(tensor):
            return None
        blocks = torch.frombuffer(tensor.data, dtype=torch.uint8).view(tensor.shape[0], -1)
        return StoredRows(blocks, tensor.type, self.dtype)

    def get_tensor(self, name: str) -> Tensor:
        """Return the tensor `name` in transformers' layout, dequantized to float32 if necessary."""
        tensor = self._tensors[name]
        if tensor.type.name in _PLAIN:
            stored = torch.frombuffer(tensor.data, dtype=_PLAIN[tensor.type.name])
            values, order = stored.view(tensor.shape), self._row_order(name, tensor)
            if order is not None:
                values = values[order]
        else:
            parts = [_dequantized(read(), tensor.type) for _, read in self._chunks(name)]
            values = torch.cat(parts).view(tensor.shape)
        if self._architecture.norm_offset and name.endswith("norm.weight"):
            values = values - self._architecture.norm_offset
        return values

    def _becomes_int8(self, tensor: TensorInfo) -> bool:
        return self.int8 and _is_quantized(tensor) and has_int8_kernel(self.device)

    def stays_int4(self, name: str) -> bool:
        """Return whether a matrix is kept in 4 bits, as it is stored.

        Tokens look up rows of an embedding, and torch has no operation for that.
        """
        tensor = self._tensors[name]
        return (
            self.int4
            and tensor.type in _INT4
            and tensor.shape[0] % ROWS == 0
            and "embed_tokens" not in name
            and self._becomes_int8(tensor)
            and has_int4_kernel(self.device)
        )

    def _chunks(self, name: str) -> Iterator[tuple[slice, Callable[[], Tensor]]]:
        """Cut a tensor into some rows each: their place in transformers' order, and what reads them."""
        tensor = self._tensors[name]
        columns = tensor.shape[-1]
        rows = torch.frombuffer(tensor.data, dtype=torch.uint8).view(tensor.numel() // columns, -1)
        order = self._row_order(name, tensor)
        step = max(1, _CHUNK // columns // ROWS) * ROWS
        for first in range(0, len(rows), step):
            part = slice(first, min(first + step, len(rows)))
            yield part, partial(rows.__getitem__, part if order is None else order[part])

    def _row_order(self, name: str, tensor: TensorInfo) -> Tensor | None:
        """Return for each row in transformers the row in the file; None if it is the same."""
        heads = {"q_proj": self.config.num_heads, "k_proj": self.config.num_kv_heads}
        projection = name.split(".")[-2]
        if not self._architecture.neighbours or projection not in heads:
            return None
        rows = torch.arange(tensor.shape[0])
        return rows.view(heads[projection], -1, 2).transpose(1, 2).flatten()


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """A quantized matrix of which single rows are looked up in the file.

    blocks  uint8 [rows, bytes], a view of the file's pages
    type    of the blocks
    dtype   the model's precision, in which rows are returned
    """

    blocks: Tensor
    type: GGMLQuantizationType
    dtype: torch.dtype

    def rows(self, indices: Tensor) -> Tensor:
        """Return these rows: [indices, columns]."""
        return _dequantized(self.blocks[indices], self.type).to(self.dtype)


def _rope_factors(name: str, tensor: TensorInfo) -> list[float]:
    """Return the values of a tensor in ROPE_FACTORS."""
    if tensor.type != GGMLQuantizationType.F32:
        raise CheckpointError(f"{name} must be F32, got {tensor.type.name}")
    return [float(factor) for factor in torch.frombuffer(tensor.data, dtype=torch.float32)]


@torch.inference_mode()  # a thread has a mode of its own, and this one may write everywhere
def _convert(
    matrix: Stored, type_: GGMLQuantizationType, rows: slice, read: Callable[[], Tensor]
) -> None:
    """Convert some rows of a tensor into their place."""
    if isinstance(matrix, Int4Matrix):
        matrix.fill(rows, read_groups(read(), type_))
    else:
        matrix[rows] = _dequantized(read(), type_)


def _dequantized(data: Tensor, type_: GGMLQuantizationType) -> Tensor:
    """Return the weights of some rows, float32 [rows, columns], of uint8 `data` [rows, bytes]."""
    if type_ in READERS:
        return read_groups(data, type_).dequantize()
    with np.errstate(all="ignore"):  # what is not finite is rejected with its name
        return torch.from_numpy(gguf.quants.dequantize(data.numpy(), type_))


def _is_quantized(tensor: TensorInfo) -> bool:
    return tensor.type.name not in _PLAIN


def _check_types(tensors: Mapping[str, TensorInfo]) -> None:
    """Raise CheckpointError, which names the tensor, for a type that cannot be dequantized."""
    first = {tensor.type: name for name, tensor in reversed(list(tensors.items()))}
    for type_, name in first.items():
        _, size = GGML_QUANT_SIZES[type_]
        try:
            gguf.quants.dequantize(np.zeros((1, size), dtype=np.uint8), type_)
        except NotImplementedError as error:
            raise CheckpointError(
                f"{name} is {type_.name}, which is not supported: use a file in another type, such "
                "as Q4_K_M, Q8_0 or F16"
            ) from error
