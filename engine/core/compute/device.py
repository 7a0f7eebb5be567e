"""The device that holds a model: weights, KV memory and the tensors of each step.

One code path serves every device: all operations are torch's, and there are no kernels of our own.
Logits are copied to the CPU, where tokens are sampled.

So far only the CPU could be tested with real computation. The tests place the model on torch's "meta"
device and on a simulated one, which proves that no operation mixes devices.
"""

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
