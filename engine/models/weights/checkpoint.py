"""The weights of a Hugging Face model directory, by name and checked as they are loaded.

A directory holds `model.safetensors`, or several files and `model.safetensors.index.json`, which says
which tensor is in which file. A model loads the tensors it needs with the shapes that its
configuration implies. A leftover tensor is an error, too: a bias that is never read would produce
wrong text without an error message.
"""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from engine.core.compute.device import CPU, dtype_name
from engine.models.weights.expert_tensors import ExpertTensor, split_experts
from engine.models.weights.matrix import Int8Matrix, Matrix, RowLookup, Stored, equal
from engine.models.weights.safetensors_file import DTYPES, StoredTensor, read_safetensors

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
PICKLES = "pytorch_model*.bin"
_FINGERPRINT_VALUES = 256  # of each tensor; fine-tuning changes nearly all values


class CheckpointError(ValueError):
    """A model directory cannot be loaded. The message names the file or tensor, and the fix."""


def pickled_error(model: str | Path) -> CheckpointError:
    """Return the error for a model whose weights are pickles, with the command that converts them.

    model  a directory, into which the command writes safetensors, or a name on the hub, for which it
           makes a directory of that name
    """
    source = model.as_posix() if isinstance(model, Path) else model
    target = source if isinstance(model, Path) else model.rpartition("/")[2]
    load, save = f"from_pretrained('{source}'", f"save_pretrained('{target}')"
    code = f"import transformers as t; t.AutoModelForCausalLM.{load}, dtype='auto').{save}"
    if source != target:
        code += f"; t.AutoTokenizer.{load}).{save}"
    return CheckpointError(
        f"{source} has its weights in {PICKLES}, which are pickles and may run code when they are "
        f'loaded: convert them with `python -c "{code}"`, which needs transformers, then load {target}'
    )


class Checkpoint:
    """The tensors of a model directory, converted to `dtype` as they are loaded.

    dtype, device   where tensors go; the loader sets them before it loads the first tensor
    num_parameters  number of values loaded so far
    fingerprint     hash over some values of each tensor loaded so far
    on_loaded       called with the bytes of each loaded tensor
    experts         the experts of each layer that this process computes: all of them, unless
                    `engine/parallel` has divided them

    Raises CheckpointError if there are no weights or a file is damaged.
    """

    on_loaded: Callable[[int], object] = staticmethod(lambda _size: None)
    experts: Container[int] = range(sys.maxsize)
    _configuration = "weights and config.json"  # for error messages

    def __init__(self, directory: Path, dtype: torch.dtype = torch.float32) -> None:
        self.directory = directory
        self.dtype, self.device = dtype, CPU
        self.num_parameters = 0
        self.fingerprint = hashlib.sha256()
        self._tensors = self._open()
        self._unused = set(self._tensors)

    def _open(self) -> dict[str, Any]:
        """Return the stored tensors by name; their values are not read yet."""
        tensors: dict[str, StoredTensor] = {}
        for path in self._files():
            try:
                tensors |= read_safetensors(path)
            except (SafetensorError, OSError) as error:
                raise CheckpointError(
                    f"{path} is damaged or incomplete ({error}): download it again"
                ) from error
        return dict(split_experts(tensors))

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def stored_dtype(self) -> torch.dtype:
        """Return the type in which the files hold most of the weights."""
        values: Counter[torch.dtype] = Counter()
        for tensor in self._tensors.values():
            values[self._dtype_of(tensor)] += tensor.numel()
        return max(values, key=values.__getitem__, default=torch.float32)

    def _dtype_of(self, tensor: Any) -> torch.dtype:
        return DTYPES.get(tensor.kind, torch.float32)  # others are rejected when they are loaded

    def weight_bytes(self) -> int:
        """Return the bytes that the weights will take in memory, from the files' headers alone."""
        values: int = sum(tensor.numel() for tensor in self._tensors.values())
        return values * self.dtype.itemsize

    @property
    def is_quantized(self) -> bool:
        """Whether weights are stored in fewer than 16 bits."""
        return False

    def get_tensor(self, name: str) -> Tensor:
        """Return a tensor as it is stored: a view of the file. Raises CheckpointError."""
        tensor: StoredTensor | ExpertTensor = self._tensors[name]
        if tensor.kind not in DTYPES:
            raise CheckpointError(
                f"{name} in {tensor.path} is {tensor.kind}: quantized weights are not supported, use "
                "the float16, bfloat16 or float32 model"
            )
        return tensor.view()

    def release(self, name: str) -> None:
        """Drop the pages of a tensor that has been copied."""
        self._tensors[name].release()

    def release_all(self) -> None:
        """Drop the pages of all tensors; those that are still views of a file are read again."""
        for name in self._tensors:
            self.release(name)

    def _where(self, name: str) -> Path:
        """Return the file that has a tensor."""
        path: Path = self._tensors[name].path
        return path

    def _files(self) -> list[Path]:
        index = self.directory / INDEX_FILE
        files = [self.directory / SINGLE_FILE]
        if index.is_file():
            try:
                names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CheckpointError(f"{index} is damaged ({error}): download it again") from error
            files = [self.directory / name for name in sorted(names)]
        for file in files:
            if not file.is_file():
                if any(self.directory.glob(PICKLES)):
                    raise pickled_error(self.directory)
                raise CheckpointError(
                    f"{file} is missing: download it, or save the model with `save_pretrained`"
                )
        return files

    def load(self, name: str, *shape: int) -> Tensor:
        """Load a tensor. Raises CheckpointError if it is missing, not finite or not of this shape.

        A tensor that is stored in the right type stays a view of the file.
        """
        stored = self._view(name, *shape)
        if stored.dtype == self.dtype and self.device == CPU:
            self._register(name, stored)
            return stored
        tensor = torch.empty(shape, dtype=self.dtype, device=self.device)
        self._copy(name, stored, tensor)
        return tensor

    def stored_rows(self, name: str) -> Tensor | RowLookup | None:
        """Return a matrix as a view of the file's pages if it holds the values that `load` returns.

        A lookup reads the pages of a few rows, so the view is no second copy. It may have another type.
        """
        stored = self._dtype_of(self._tensors[name])
        is_exact = stored == self.dtype or (self.dtype == torch.float32 and stored != torch.float64)
        return self.get_tensor(name) if is_exact and self.device == CPU else None

    def load_transposed(self, name: str, rows: int, columns: int) -> Tensor:
        """Load a matrix that is stored as [rows, columns] as [columns, rows]."""
        tensor = torch.empty(columns, rows, dtype=self.dtype, device=self.device)
        self._copy(name, self._view(name, rows, columns).t(), tensor)
        return tensor

    def load_matrix(self, rows: Mapping[str, int], columns: int) -> Matrix:
        """Load matrices and stack them: [sum of `rows`, columns].

        `rows` maps each tensor's name to its number of rows. One memory block is allocated for the
        result, and each tensor is copied into it, so the weights never exist twice.
        """
        if len(rows) == 1:
            [(name, count)] = rows.items()
            return self.load(name, count, columns)
        stacked = torch.empty(sum(rows.values()), columns, dtype=self.dtype, device=self.device)
        first = 0
        for name, count in rows.items():
            self._copy(name, self._view(name, count, columns), stacked[first : first + count])
            first += count
        return stacked

    def _view(self, name: str, *shape: int) -> Tensor:
        """Return a tensor as it is stored. Raises CheckpointError if it is missing or unsuitable."""
        self._find(name, *shape)
        return self.get_tensor(name)

    def _find(self, name: str, *shape: int) -> Any:
        """Return a stored tensor. Raises CheckpointError if it is missing or not of this shape."""
        if (tensor := self._tensors.get(name)) is None:
            raise CheckpointError(
                f"{self.directory} has no tensor {name}: {self._configuration} do not belong together"
            )
        if tensor.shape != shape:
            raise CheckpointError(
                f"{name} in {self._where(name)} has shape {list(tensor.shape)}, but the configuration "
                f"implies {list(shape)}: {self._configuration} do not belong together"
            )
        return tensor

    def _copy(self, name: str, stored: Tensor, target: Tensor) -> None:
        """Convert a stored tensor into its place, without another tensor in between."""
        target.copy_(stored)
        self.release(name)
        self._register(name, target)

    def _register(self, name: str, tensor: Stored) -> None:
        """Count a loaded tensor. Raises CheckpointError if it is not finite."""
        parts = [tensor] if isinstance(tensor, Tensor) else tensor.tensors
        # NaN and infinity show in the smallest and largest value; isfinite() would need a copy.
        if not torch.stack(parts[0].aminmax()).isfinite().all():
            raise CheckpointError(
                f"{name} in {self._where(name)} holds NaN or infinity as "
                f"{dtype_name(self.dtype)}: download it again, or load the model as float32"
            )
        self._unused.discard(name)
        self.num_parameters += tensor.numel()
        self.fingerprint.update(name.encode())
        for part in parts:
            some = part.flatten()[:: max(1, part.numel() // _FINGERPRINT_VALUES)]
            self.fingerprint.update(some.float().cpu().numpy().tobytes())
        self.on_loaded(tensor.nbytes)

    def load_embedding(self, name: str, rows: int, columns: int) -> Tensor | Int8Matrix:
        """Load a matrix in a form in which rows can be looked up: [rows, columns]."""
        matrix = self.load_matrix({name: rows}, columns)
        assert isinstance(matrix, Tensor | Int8Matrix)
        return matrix

    def load_lm_head(
        self, embedding: Tensor | Int8Matrix, *, tied: bool, name: str = "lm_head.weight"
    ) -> Matrix:
        """Load the output layer [vocab, hidden]: the tensor `name`, or the embedding if tied.

        A checkpoint with tied embeddings may still contain the tensor. If it differs from the
        embedding, it is used, as in transformers.
        """
        if tied and name not in self:
            return embedding
        vocab_size, hidden_size = embedding.shape
        output = self.load_matrix({name: vocab_size}, hidden_size)
        if tied and equal(output, embedding):
            self.num_parameters -= output.numel()
            return embedding
        return output

    def ignore(self, *names: str) -> None:
        """Allow these tensors to stay unused."""
        self._unused -= set(names)

    def ignore_others(self, prefix: str, unread: tuple[str, ...] = ()) -> None:
        """Forget tensors whose names do not start with `prefix`, or that start with one of `unread`.

        Those are the tensors of an image encoder, or weights that a model has although it does not
        read them.
        """
        self._tensors = {
            name: tensor
            for name, tensor in self._tensors.items()
            if name.startswith(prefix) and not name.startswith(unread)
        }
        self._unused &= self._tensors.keys()

    def check_all_loaded(self) -> None:
        """Raise CheckpointError if a tensor was never loaded."""
        if self._unused:
            raise CheckpointError(
                f"{self.directory} has {len(self._unused)} tensors that this architecture does not "
                f"use, {min(self._unused)} for one: {self._configuration} do not belong together"
            )
