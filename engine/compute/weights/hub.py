"""Models from the Hugging Face hub: fetched once, then read from the local cache."""

import re
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError

from engine.compute.weights.checkpoint import CheckpointError

# What `load` reads; repositories also hold the weights in formats for other programs.
_FILES = ["*.json", "*.safetensors", "chat_template.jinja"]
_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_name(model: str) -> bool:
    """Whether this could be a model on the hub: `owner/name`."""
    return _NAME.fullmatch(model) is not None


def fetch(name: str) -> Path:
    """The local directory of the hub's model `name`, fetched if it is not in the cache yet.

    Raises CheckpointError if there is no network and no cached copy, no such model, or no access.
    """
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=_FILES))
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"there is no model directory {name}, and no model of that name could be fetched from the "
            f"Hugging Face hub ({reason}): check the name and the network, or give a local directory"
        ) from error
