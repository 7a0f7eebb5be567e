"""The bundled model without some of its layers: a draft model that agrees with it now and then."""

import json
import shutil
from collections.abc import Collection
from pathlib import Path

from safetensors.torch import load_file, save_file

from engine.models.loader import BUNDLED


def save_without_layers(directory: Path, dropped: Collection[int]) -> None:
    """Write a copy of the bundled model that lacks the layers with these indexes."""
    shutil.copytree(BUNDLED, directory)
    config = json.loads((BUNDLED / "config.json").read_text(encoding="utf-8"))
    kept = [one for one in range(config["num_hidden_layers"]) if one not in dropped]
    changed = json.dumps(config | {"num_hidden_layers": len(kept)})
    (directory / "config.json").write_text(changed, encoding="utf-8")
    weights = {}
    for name, tensor in load_file(BUNDLED / "model.safetensors").items():
        index, _, tail = name.removeprefix("model.layers.").partition(".")
        if not name.startswith("model.layers."):
            weights[name] = tensor
        elif int(index) in kept:
            weights[f"model.layers.{kept.index(int(index))}.{tail}"] = tensor
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
