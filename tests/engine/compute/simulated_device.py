"""A second device without hardware: its tensors compute on the CPU, but cannot be mixed with the CPU's.

torch calls the device "meta". A tensor on it wraps one of the CPU. Each operation runs on the wrapped
tensors, so values are real, and raises if it mixes devices, as it would on a GPU. Only copies, `.cpu()`
and `.to(device)`, cross the border. `.numpy()` fails, as on every device but the CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")


class MixedDevicesError(RuntimeError):
    """An operation got tensors of two devices."""


class _Tensor(torch.Tensor):
    """A tensor on the simulated device; `inner` is on the CPU."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor):
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        tensor.inner = inner
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


@contextmanager
def simulated_device() -> Iterator[None]:
    """Within the block, tensors made with `device=DEVICE` are on the simulated device."""
    with _Operations(), _Literals():
        yield


class _Literals(TorchFunctionMode):
    """Moves what `torch.tensor` makes: torch drops the values of a literal on its meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.tensor and kwargs.get("device") == DEVICE:
            return func(*args, **kwargs | {"device": "cpu"}).to(DEVICE)
        if func in _INDEXING and isinstance(args[0], _Tensor):
            args = (args[0], _on_device(args[1]), *args[2:])
        return func(*args, **kwargs)


_INDEXING = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)


def _on_device(index: Any) -> Any:
    """Return an index whose lists are tensors on the device, as torch makes them on a GPU."""
    if isinstance(index, tuple):
        return tuple(map(_on_device, index))
    return torch.tensor(index, dtype=torch.int64).to(DEVICE) if isinstance(index, list) else index


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation on the wrapped tensors. Raises MixedDevicesError."""
    values = tree_flatten((args, kwargs))[0]
    if func.namespace == "mkldnn" and any(isinstance(value, _Tensor) for value in values):
        raise MixedDevicesError(f"{func} exists only on the CPU")
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    targets = [value for value in values if isinstance(value, torch.device)]
    own = [isinstance(tensor, _Tensor) for tensor in tensors]
    if any(own) and func is not torch.ops.aten.copy_.default:
        for tensor, is_own in zip(tensors, own, strict=True):
            # A CPU tensor without dimensions counts as a number and may take part everywhere.
            if not is_own and tensor.dim():
                raise MixedDevicesError(f"{func}: {tensor.device} beside the simulated device")
    stays = own[0] if func is torch.ops.aten.copy_.default else any(own)
    there = targets[0] == DEVICE if targets else stays
    args, kwargs = tree_map(_on_cpu, (args, kwargs))
    result = func(*args, **kwargs)
    return tree_map(_wrapped, result) if there else result


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value == DEVICE else value
    return value.inner if isinstance(value, _Tensor) else value


def _wrapped(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    with torch.inference_mode(False):  # torch cannot make views of a wrapper in inference mode
        return _Tensor(value)
