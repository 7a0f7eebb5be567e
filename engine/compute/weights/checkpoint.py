"""The weights of a Hugging Face model directory, by name and checked as they are loaded.

A directory holds `model.safetensors`, or several files and `model.safetensors.index.json`, which says
which tensor is in which file. A model loads the tensors it needs with the shapes that its
configuration implies. A leftover tensor is an error, too: a bias that is never read would produce
wrong text without an error message.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


class CheckpointError(ValueError):
    """A model directory cannot be loaded. The message names the file or tensor, and the fix."""


class Checkpoint:
    """The tensors of a model directory, converted to `dtype` as they are loaded.

    num_parameters  number of values loaded so far

    Raises CheckpointError if there are no weights or a file is damaged.
    """

    def __init__(self, directory: Path, dtype: torch.dtype) -> None:
        self.directory = directory
        self.dtype = dtype
        self.num_parameters = 0
        self._location: dict[str, tuple[Path, Any]] = {}  # tensor -> file and its reader
        for file in self._files():
            try:
                reader = safe_open(file, framework="pt")
                names = list(reader.keys())  # type: ignore[no-untyped-call]
            except (SafetensorError, OSError) as error:
                raise CheckpointError(
                    f"{file} is damaged or incomplete ({error}): download it again"
                ) from error
            self._location |= {name: (file, reader) for name in names}
        self._unused = set(self._location)

    def __contains__(self, name: str) -> bool:
        return name in self._location

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
                raise CheckpointError(
                    f"{file} is missing: download it, or save the model with "
                    "`save_pretrained(..., safe_serialization=True)`"
                )
        return files

    def load(self, name: str, *shape: int) -> Tensor:
        """Load a tensor. Raises CheckpointError if it is missing, not finite or not of this shape."""
        if name not in self._location:
            raise CheckpointError(
                f"{self.directory} has no tensor {name}: weights and config.json do not belong "
                "together"
            )
        file, reader = self._location[name]
        try:
            tensor: Tensor = reader.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{name} in {file} is damaged ({error})") from error
        if tensor.shape != shape:
            raise CheckpointError(
                f"{name} in {file} has shape {list(tensor.shape)}, config.json implies "
                f"{list(shape)}: weights and config.json do not belong together"
            )
        if not tensor.is_floating_point():
            raise CheckpointError(
                f"{name} in {file} is {tensor.dtype}: quantized weights are not supported, use the "
                "float16, bfloat16 or float32 model"
            )
        tensor = tensor.to(self.dtype)
        if not torch.isfinite(tensor).all():
            raise CheckpointError(
                f"{name} in {file} holds NaN or infinity as {self.dtype}: download it again, or "
                "load the model as float32"
            )
        self._unused.discard(name)
        self.num_parameters += tensor.numel()
        return tensor

    def load_lm_head(self, embedding: Tensor, *, tied: bool) -> Tensor:
        """Load the output layer [vocab, hidden]: `lm_head.weight`, or the embedding if tied.

        A checkpoint with tied embeddings may still contain `lm_head.weight`. If it differs from the
        embedding, it is used, as in transformers.
        """
        name = "lm_head.weight"
        if tied and name not in self:
            return embedding
        output = self.load(name, *embedding.shape)
        if tied and torch.equal(output, embedding):
            self.num_parameters -= output.numel()
            return embedding
        return output

    def ignore(self, *names: str) -> None:
        """Allow these tensors to stay unused."""
        self._unused -= set(names)

    def check_all_loaded(self) -> None:
        """Raise CheckpointError if a tensor was never loaded."""
        if self._unused:
            raise CheckpointError(
                f"{self.directory} has {len(self._unused)} tensors that this architecture does not "
                f"use, {min(self._unused)} for one: weights and config.json do not belong together"
            )
