"""The weights of a Hugging Face model directory: tensors by name, checked as they are taken.

A directory holds `model.safetensors`, or several files and `model.safetensors.index.json`, which says
which tensor is in which file. A model takes the tensors it needs with the shapes its configuration
promises, and whatever is left over afterwards is an error too: a bias that nobody reads would give
wrong text instead of a message.
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
    """A model directory cannot be loaded. The message names file or tensor and what to do."""


class Checkpoint:
    """The tensors of a model directory, converted to `dtype` as they are taken.

    num_parameters  values taken so far

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
                    f"{file} is damaged or not complete ({error}): fetch it again"
                ) from error
            self._location |= {name: (file, reader) for name in names}
        self._left = set(self._location)

    def __contains__(self, name: str) -> bool:
        return name in self._location

    def _files(self) -> list[Path]:
        index = self.directory / INDEX_FILE
        if index.is_file():
            try:
                names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CheckpointError(f"{index} is damaged ({error}): fetch it again") from error
            files = [self.directory / name for name in sorted(names)]
        else:
            files = [self.directory / SINGLE_FILE]
        for file in files:
            if not file.is_file():
                raise CheckpointError(
                    f"{file} is missing: fetch it, or save the model with "
                    "`save_pretrained(..., safe_serialization=True)`"
                )
        return files

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor `name`; raises CheckpointError unless it is there, finite and of this shape."""
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
                f"{name} in {file} holds NaN or infinity as {self.dtype}: fetch it again, or load "
                "the model as float32"
            )
        self._left.discard(name)
        self.num_parameters += tensor.numel()
        return tensor

    def take_lm_head(self, embedding: Tensor, *, tied: bool) -> Tensor:
        """The output layer [vocab, hidden]: `lm_head.weight`, or the embedding where they are tied.

        A file whose configuration says tied may bring an output layer all the same. It is the
        embedding once more, or else it counts, as in transformers.
        """
        name = "lm_head.weight"
        if tied and name not in self:
            return embedding
        output = self.take(name, *embedding.shape)
        if tied and torch.equal(output, embedding):
            self.num_parameters -= output.numel()
            return embedding
        return output

    def ignore(self, *names: str) -> None:
        """These tensors may be there and are not needed."""
        self._left -= set(names)

    def check_all_taken(self) -> None:
        """Raise CheckpointError if a tensor is left that nobody took."""
        if self._left:
            first = min(self._left)
            raise CheckpointError(
                f"{self.directory} has tensors this architecture does not use, {first} for one "
                f"({len(self._left)} in all): weights and config.json do not belong together"
            )
