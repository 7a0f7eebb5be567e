"""PEFT directories for the bundled model, written without PEFT, which takes seconds to import."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file


def save_adapter(directory: Path, seed: int, *, rank: int = 4, size: int = 192, **more) -> Path:
    """Save an adapter of the first layer's output projection; `size` is the model's hidden one."""
    directory.mkdir()
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 4 * rank} | more
    (directory / "adapter_config.json").write_text(json.dumps(config))
    draw = torch.Generator().manual_seed(seed)
    name = "base_model.model.model.layers.0.self_attn.o_proj.lora_{}.weight"
    shapes = {"A": (rank, size), "B": (size, rank)}
    matrices = {name.format(x): torch.randn(*shapes[x], generator=draw) * 0.2 for x in shapes}
    save_file(matrices, directory / "adapter_model.safetensors")
    return directory
