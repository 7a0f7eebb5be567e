"""Find the tensors that a part of the engine holds, to check their type and device."""

from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType

import torch


def tensors_of(part: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in `part`, in its lists, and in those of its parts that compute."""
    if isinstance(part, torch.Tensor):
        yield part
    elif isinstance(part, list | tuple):
        for one in part:
            yield from tensors_of(one)
    elif isinstance(part, partial):
        yield from tensors_of(list(part.keywords.values()))
    elif isinstance(part, MethodType):
        yield from tensors_of(part.__self__)
    elif isinstance(part, FunctionType):
        yield from tensors_of([cell.cell_contents for cell in part.__closure__ or ()])
    elif type(part).__module__.startswith(("engine.core.compute", "engine.models")):
        names = [*getattr(part, "__dict__", ()), *getattr(type(part), "__slots__", ())]
        for name in names:
            yield from tensors_of(getattr(part, name))
