"""A PEFT directory: the low-rank matrices of a LoRA adapter, checked against the model that they adapt.

    adapter_config.json         rank, alpha, and switches, of which most change what the matrices mean
    adapter_model.safetensors   for each adapted module lora_A [r, in] and lora_B [out, r]

An adapted product is W x + scaling * B (A x), with scaling = alpha / r, or alpha / sqrt(r) for rsLoRA
(arXiv:2312.03732). A switch that this file does not know would compute wrong text without an error, so
each of them is rejected by name unless it is off.

Source: PEFT's `LoraConfig`; vLLM rejects about the same (`vllm/lora/peft_helper.py`).

Differs from vLLM, which has `max_lora_rank` because its slots have a fixed size. Here a slot takes any
rank.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from engine.extensions.adapters import AdapterError, NoAdapterError
from engine.models.weights.safetensors_file import DTYPES, read_safetensors

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
MAX_CONFIG_BYTES = 1 << 20

# Switches that have to be off.
_UNSUPPORTED = (
    "modules_to_save", "use_dora", "lora_bias", "alora_invocation_tokens", "layer_replication",
    "use_qalora", "use_bdlora", "fan_in_fan_out", "trainable_token_indices", "target_parameters",
)  # fmt: skip
# These initialisations leave the base model's weights as they are; others, such as PiSSA, change them.
_KEEP_THE_BASE = ("gaussian", "eva", "orthogonal", "mica", "lora_ga")
# "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight"
_NAME = re.compile(
    r"base_model\.model\.(?P<module>(?:\w+\.)*?layers\.(?P<layer>\d+)\.(?P<part>[\w.]+))"
    r"\.lora_(?P<side>[AB])\.weight"
)
# Keys of alpha_pattern are expressions. One with repetitions could match for hours.
_PATTERN = re.compile(r"(?:\\\.|[\w.^$])+")


@dataclass(frozen=True, slots=True)
class LoRAPair:
    """The change of one module: W x + B (A x).

    a  [r, in], as stored
    b  [out, r], as stored
    scaling  what B A is multiplied by
    """

    a: Tensor
    b: Tensor
    scaling: float


def read_peft(directory: Path) -> dict[tuple[int, str], LoRAPair]:
    """Return the pairs of a directory by layer and module, such as (3, "self_attn.q_proj").

    Raises AdapterError, which names the file and the entry, for what cannot be served.
    """
    config = _read_config(directory)
    path = directory / WEIGHTS_FILE
    try:
        if not path.is_file():  # a pipe would be waited for
            raise FileNotFoundError("it is no file")
        stored = read_safetensors(path)
    except (SafetensorError, OSError) as error:
        raise AdapterError(
            f"{path} is missing or damaged ({error}): save the adapter with PEFT's save_pretrained"
        ) from error
    sides: dict[tuple[int, str], dict[str, Tensor]] = {}
    modules: dict[tuple[int, str], str] = {}
    for name, tensor in stored.items():
        found = _NAME.fullmatch(name)
        if found is None or tensor.kind not in DTYPES or len(tensor.shape) != 2:
            raise AdapterError(
                f"{path}: {name} ({tensor.kind} {list(tensor.shape)}) is not a LoRA matrix of a "
                "decoder layer; only those are supported"
            )
        place = int(found["layer"]), found["part"]
        modules[place] = found["module"]
        sides.setdefault(place, {})[found["side"]] = tensor.view().clone()
    if not sides:
        raise AdapterError(f"{path} has no matrices: train the adapter before you serve it")
    pairs = {}
    for place, pair in sides.items():
        if pair.keys() != {"A", "B"} or pair["A"].shape[0] != pair["B"].shape[1]:
            raise AdapterError(f"{path}: {modules[place]} needs lora_A [r, in] and lora_B [out, r]")
        rank = pair["A"].shape[0]
        alpha = _of_module(config["alpha_pattern"], modules[place], config["lora_alpha"])
        divisor = math.sqrt(rank) if config["use_rslora"] else rank
        pairs[place] = LoRAPair(pair["A"], pair["B"], alpha / divisor)
    return pairs


def _read_json(path: Path) -> dict[str, Any]:
    content, entries = b"", None
    try:
        if path.is_file():
            with path.open("rb") as file:
                content = file.read(MAX_CONFIG_BYTES + 1)
            if len(content) <= MAX_CONFIG_BYTES:
                entries = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise AdapterError(
            f"{path} cannot be read ({error}): give the directory of a PEFT adapter"
        ) from error
    if not content:
        raise NoAdapterError(f"there is no file {path}: give the directory of a PEFT adapter")
    if len(content) > MAX_CONFIG_BYTES:
        raise AdapterError(f"{path} has more than {MAX_CONFIG_BYTES} bytes: it is no configuration")
    if not isinstance(entries, dict):
        raise AdapterError(f"{path} must be a JSON object")
    return entries


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG_FILE
    entries = _read_json(path)
    kind = entries.get("peft_type")
    if kind != "LORA":
        raise AdapterError(f"{path}: peft_type = {kind!r} is not supported, only 'LORA'")
    if entries.get("bias", "none") != "none":
        raise AdapterError(f"{path}: bias = {entries['bias']!r} is not supported, only 'none'")
    for name in _UNSUPPORTED:
        if entries.get(name):
            raise AdapterError(
                f"{path}: {name} = {entries[name]!r} is not supported; it has to be off"
            )
    start = entries.get("init_lora_weights", True)
    if isinstance(start, str) and start.lower() not in _KEEP_THE_BASE:
        raise AdapterError(
            f"{path}: init_lora_weights = {start!r} changes the base model's weights and is not "
            "supported: convert the adapter with PEFT's path_initial_model_for_weight_conversion"
        )
    alpha, patterns = entries.get("lora_alpha"), entries.get("alpha_pattern") or {}
    for value in (alpha, *(patterns.values() if isinstance(patterns, dict) else [None])):
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise AdapterError(
                f"{path}: lora_alpha and alpha_pattern must be numbers, got {value!r}"
            )
    if wrong := [key for key in patterns if not _PATTERN.fullmatch(key)]:
        raise AdapterError(
            f"{path}: alpha_pattern {wrong[0][:100]!r} is not supported, only names of modules, which "
            "may have ^, $ and dots"
        )
    return {
        "lora_alpha": alpha,
        "alpha_pattern": patterns,
        "use_rslora": bool(entries.get("use_rslora")),
    }


def _of_module(pattern: dict[str, float], module: str, default: float) -> float:
    """Return a module's entry: the first key that is a suffix of its name, as in PEFT."""
    for key, value in pattern.items():
        if re.match(rf"(.*\.)?({key})$", module):
            return value
    return default
