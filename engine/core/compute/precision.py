"""The precision of a model: the type in which weights and KV are kept and computed.

"auto" is the type in which the checkpoint stores most of its weights, if the device computes it with
instructions of its own, and otherwise float32. It is decided from the device's capabilities and never
by timing, so the same model on the same machine always computes the same.

Half precision on a CPU without such instructions still halves the memory of weights and KV. Activations
are then float32, and products convert the weights part by part (`model/products.py`).

Differs from vLLM, which decides by config.json's `dtype` (`_find_dtype` in `vllm/config/model.py`) and
converts float32 checkpoints to half precision.
"""

from collections.abc import Mapping
from typing import Literal, get_args

import torch

from engine.core.config import ConfigError

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
