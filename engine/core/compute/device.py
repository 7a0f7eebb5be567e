"""The device that holds a model, and the precision in which it computes.

The device holds the weights, the KV memory and the tensors of each step.
One code path serves every device: all operations are torch's, and there are no kernels of our own.
Logits are copied to the CPU, where tokens are sampled.

So far only the CPU could be tested with real computation. The tests place the model on torch's "meta"
device and on a simulated one, which proves that no operation mixes devices.

The precision is the type in which weights and KV are kept and computed. "auto" is the type in which
the checkpoint stores most of its weights, if the device computes it with instructions of its own, and
otherwise float32. It is decided from the device's capabilities and never by timing, so the same model
on the same machine always computes the same. Half precision on a CPU without such instructions still
halves the memory of weights and KV. Activations are then float32, and products convert the weights
part by part (`engine/models/products.py`).

Differs from vLLM, which decides by config.json's `dtype` (`_find_dtype` in `vllm/config/model.py`) and
converts float32 checkpoints to half precision.
"""

from collections.abc import Mapping
from typing import Literal, get_args

import torch

from engine.core.config import ConfigError

Device = Literal["cpu", "cuda", "mps"]
CPU = torch.device("cpu")


def resolve_device(name: Device | str) -> torch.device:
    """Return the device of this name. Raises ConfigError if there is none on this machine."""
    names = get_args(Device)
    if name not in names:
        raise ConfigError(f"device must be one of {', '.join(names)}, got {name!r}")
    available = available_devices()
    if name not in available:
        raise ConfigError(
            f"device {name} is not available on this machine; available: {', '.join(available)}"
        )
    return torch.device(name)


def available_devices() -> list[str]:
    """Return the names of the devices on this machine; the CPU comes first."""
    found = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.mps.is_available()}
    return [name for name, present in found.items() if present]


Precision = Literal["auto", "float32", "bfloat16", "float16"]

# The CPU features that compute a type, any of which suffices, as `torch.cpu.get_capabilities` names
# them: first those of x86, then those of ARM.
_CPU_FEATURES = {
    torch.float32: (),
    torch.bfloat16: ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"),
    torch.float16: ("avx512_fp16", "amx_fp16", "fp16_arith"),
}
_AMPERE = (8, 0)  # compute capability of the first NVIDIA GPUs with bfloat16


def resolve_dtype(
    precision: Precision | str, stored: torch.dtype, device: torch.device
) -> torch.dtype:
    """Return the type to compute in; `stored` is that of most weights in the checkpoint.

    Raises ConfigError for a precision that does not exist.
    """
    names = get_args(Precision)
    if precision not in names:
        raise ConfigError(f"dtype must be one of {', '.join(names)}, got {precision!r}")
    if precision == "auto":
        return stored if is_native(stored, device) else torch.float32
    dtype: torch.dtype = getattr(torch, precision)
    return dtype


def is_native(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the device has instructions that compute `dtype`."""
    if dtype not in _CPU_FEATURES:  # float64, which no supported checkpoint needs
        return False
    if device.type == "cuda" and dtype == torch.bfloat16:
        return torch.cuda.get_device_capability(device) >= _AMPERE
    if device.type == "cpu" and dtype != torch.float32:
        # torch has had this function since 2.11; without it, no feature is known.
        features: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
        return any(features.get(name, False) for name in _CPU_FEATURES[dtype])
    return True


def activation_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the type in which a model with weights and KV in `dtype` computes its activations.

    This is `dtype` where the device computes it natively. Otherwise it is float32: converting the few
    values of each token back and forth would take time and lose precision.
    """
    return dtype if is_native(dtype, device) else torch.float32


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a type as in config.json: "bfloat16"."""
    return str(dtype).removeprefix("torch.")
