"""A GGUF file as a checkpoint: llama.cpp's single file with configuration, weights and tokenizer.

Configuration and weights are translated into the form of config.json and safetensors, and then checked
and used like any others. `engine/models/text/gguf_tokenizer.py` reads the tokenizer.

Quantized matrices are converted once, as they are loaded: dequantized a few rows at a time, and rounded
to int8 with a scale per row where torch has a kernel for such weights (`Int8Matrix`), otherwise to the
model's precision. So loading takes little more than the memory of the result: 38 MB for a Q8_0 file of
a model with 0.5B parameters, 20 MB for Q4_K_M (`python -m benchmarks loading`).

Why one scale per row, though a file has one for every 32 values or fewer: that is what torch's kernel
for CPUs takes, and little is lost. In random models with rows of 256 values, the logits differ by this
from the model before it was quantized (root mean square, as a share of the logits' spread):

              Q8_0    Q6_K    Q4_K_M  Q2_K
    float32   0.025   0.077   0.368   0.950     the file's weights, exactly
    int8      0.043   0.081   0.373   0.950
    llama.cpp 0.032   0.081   0.372   0.944

Only Q8_0 loses visibly. Real weights have more outliers than random ones, and a row with a large one
has larger steps. `python -m tests.engine.compute.gguf_fixtures accuracy` measured this.

Differs from llama.cpp, which computes with the blocks of the file and rounds activations to 8 bits.
"""

from collections.abc import Iterator, Mapping
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
from engine.models.weights.gguf_file import GGUFError, GGUFFile, TensorInfo
from engine.models.weights.matrix import Int8Matrix, Matrix, has_int8_kernel

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_CHUNK = 2**18  # values that are dequantized at once


class GGUFCheckpoint(Checkpoint):
    """The weights of a GGUF file under transformers' names, and its configuration as `config`.

    file  the opened file, with its metadata
    int8  keep quantized matrices in int8 where the device has a kernel for it; otherwise they are
          dequantized to `dtype`

    Raises CheckpointError for a damaged file, a type that the `gguf` package cannot dequantize, or an
    architecture that is not in ARCHITECTURES.
    """

    _configuration = "the file's weights and its metadata"
    int8 = True

    def _open(self) -> dict[str, Any]:
        try:
            self.file = GGUFFile(self.directory)
        except GGUFError as error:
            raise CheckpointError(str(error)) from error
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
        for tensor in self._tensors.values():
            if len(tensor.shape) == 2 and self._becomes_int8(tensor):
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

        The result is an Int8Matrix if every one of them is quantized and the device has a kernel.
        """
        tensors = [self._find(name, count, columns) for name, count in rows.items()]
        if not any(_is_quantized(tensor) for tensor in tensors):
            return super().load_matrix(rows, columns)
        stacked: Matrix
        if all(self._becomes_int8(tensor) for tensor in tensors):
            stacked = Int8Matrix.empty(sum(rows.values()), columns, dtype=self.dtype)
        else:
            stacked = torch.empty(sum(rows.values()), columns, dtype=self.dtype, device=self.device)
        first = 0
        for name, tensor in zip(rows, tensors, strict=True):
            whole = slice(first, first + tensor.shape[0])
            for part, values in self._chunks(name, tensor):
                stacked[first + part.start : first + part.stop] = values
            self._register(name, stacked[whole])
            first = whole.stop
        self.file.release()
        return stacked

    def get_tensor(self, name: str) -> Tensor:
        """Return the tensor `name` in transformers' layout, dequantized to float32 if necessary."""
        tensor = self._tensors[name]
        if tensor.type.name in _PLAIN:
            stored = torch.frombuffer(tensor.data, dtype=_PLAIN[tensor.type.name])
            values, order = stored.view(tensor.shape), self._row_order(name, tensor)
            if order is not None:
                values = values[order]
        else:
            values = torch.cat([values for _, values in self._chunks(name, tensor)])
            values = values.view(tensor.shape)
        if self._architecture.norm_offset and name.endswith("norm.weight"):
            values = values - self._architecture.norm_offset
        return values

    def _becomes_int8(self, tensor: TensorInfo) -> bool:
        return self.int8 and _is_quantized(tensor) and has_int8_kernel(self.device)

    def _chunks(self, name: str, tensor: TensorInfo) -> Iterator[tuple[slice, Tensor]]:
        """Dequantize a few rows at a time: their place in transformers' order, float32 [n, in]."""
        columns = tensor.shape[-1]
        rows = np.frombuffer(tensor.data, dtype=np.uint8).reshape(tensor.numel() // columns, -1)
        order = self._row_order(name, tensor)
        step = max(1, _CHUNK // columns)
        for first in range(0, len(rows), step):
            part = slice(first, min(first + step, len(rows)))
            chosen = rows[part if order is None else order[part].numpy()]
            with np.errstate(all="ignore"):  # what is not finite is rejected with its name
                values = gguf.quants.dequantize(chosen, tensor.type)
            yield part, torch.from_numpy(values)

    def _row_order(self, name: str, tensor: TensorInfo) -> Tensor | None:
        """Return for each row in transformers the row in the file; None if it is the same."""
        heads = {"q_proj": self.config.num_heads, "k_proj": self.config.num_kv_heads}
        projection = name.split(".")[-2]
        if not self._architecture.neighbours or projection not in heads:
            return None
        rows = torch.arange(tensor.shape[0])
        return rows.view(heads[projection], -1, 2).transpose(1, 2).flatten()


def _rope_factors(name: str, tensor: TensorInfo) -> list[float]:
    """Return the values of a tensor in ROPE_FACTORS."""
    if tensor.type != GGMLQuantizationType.F32:
        raise CheckpointError(f"{name} must be F32, got {tensor.type.name}")
    return [float(factor) for factor in torch.frombuffer(tensor.data, dtype=torch.float32)]


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
