"""Models from the Hugging Face hub: downloaded once, then read from the local cache."""

import re
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError

from engine.compute.weights.checkpoint import CheckpointError

# The files that `load` reads; repositories also hold the weights in other formats.
_FILES = ["*.json", "*.safetensors", "chat_template.jinja"]
_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_name(model: str) -> bool:
    """Return whether this has the form `owner/name`."""
    return _NAME.fullmatch(model) is not None


def download(name: str) -> Path:
    """Return the local directory of the hub's model `name`; download it if it is not cached.

    Raises CheckpointError if the model is unknown, access is denied, or there is neither a network nor
    a cached copy.
    """
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=_FILES))
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"there is no model directory {name}, and no model of that name could be downloaded from "
            f"the Hugging Face hub ({reason}): check the name and the network, or give a local "
            "directory"
        ) from error
