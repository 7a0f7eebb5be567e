"""Read and check a Hugging Face `config.json`.

Every entry that changes the computation is either supported or rejected by name. If an entry were
silently ignored, the model would run and write nonsense.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from engine.core.compute.model import ModelConfig
from engine.models.config_gemma4 import GEMMA4, read_gemma4
from engine.models.config_llama import read_llama
from engine.models.families import FAMILIES
from engine.models.gpt2 import ARCHITECTURE as GPT2
from engine.models.gpt2 import read_gpt2
from engine.models.mla import MLA, read_mla
from engine.models.recurrent import reject_recurrent
from engine.models.weights.checkpoint import CheckpointError

_MXFP4 = "GptOssForCausalLM"
SUPPORTED = frozenset({*FAMILIES, GPT2})
_READERS: dict[str, Callable[[str, dict[str, Any]], ModelConfig]] = {
    GPT2: read_gpt2,
    **dict.fromkeys(GEMMA4, read_gemma4),
    **dict.fromkeys(MLA, read_mla),
}


def read_config(directory: Path) -> ModelConfig:
    """Read the configuration in `directory`: a LlamaConfig for every model but GPT-2.

    Raises CheckpointError, which names the entry, if an entry is not supported.
    """
    file = directory / "config.json"
    if not file.is_file():
        raise CheckpointError(
            f"{directory} has no config.json: give the directory of a Hugging Face model"
        )
    try:
        return parse_config(msgspec.json.decode(file.read_bytes(), type=dict[str, Any]))
    except (msgspec.DecodeError, CheckpointError) as error:
        raise CheckpointError(f"{file}: {error}") from error


def parse_config(entries: dict[str, Any]) -> ModelConfig:
    """Convert the entries of a config.json; raises the same errors as `read_config`."""
    architecture = _checked_architecture(entries)
    _reject_quantized(entries)
    read = _READERS.get(architecture, read_llama)
    try:
        config = read(architecture, entries)
    except msgspec.ValidationError as error:
        raise CheckpointError(str(error)) from error
    _check_sizes(config)
    return config


def _checked_architecture(entries: dict[str, Any]) -> str:
    architectures: object = entries.get("architectures")
    supported = f"supported are {', '.join(sorted(SUPPORTED))}"
    if not isinstance(architectures, list) or not architectures:
        raise CheckpointError(
            f"architectures is missing, so the kind of model is unknown; {supported}"
        )
    reject_recurrent(str(architectures[0]), entries)
    if architectures[0] not in SUPPORTED:
        raise CheckpointError(f"architecture {architectures[0]} is not supported; {supported}")
    return str(architectures[0])


def _reject_quantized(entries: dict[str, Any]) -> None:
    """Reject AWQ, GPTQ, FP8 and the like: each has a layout and GPU kernels of its own.

    MXFP4 is read as gpt-oss stores it; see `expert_tensors.py`.
    """
    if settings := entries.get("quantization_config") or entries.get("compression_config"):
        method = settings.get("quant_method") if isinstance(settings, dict) else None
        if method == "mxfp4" and entries["architectures"][0] == _MXFP4:
            return
        raise CheckpointError(
            f"the weights are quantized (quantization_config = {settings!r}), which is not supported: "
            "use a GGUF file of this model, such as Q4_K_M or Q8_0, or the directory of the model "
            "before it was quantized"
        )


def _check_sizes(config: ModelConfig) -> None:
    for name in (
        "vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads",
        "head_dim", "max_context",
    ):  # fmt: skip
        if getattr(config, name) < 1:
            raise CheckpointError(f"{name} must be at least 1, got {getattr(config, name)}")
    if config.num_heads % config.num_kv_heads:
        raise CheckpointError(
            f"num_attention_heads ({config.num_heads}) must be a multiple of "
            f"num_key_value_heads ({config.num_kv_heads})"
        )
    if not 0 <= config.norm_eps < 1:
        raise CheckpointError(f"the norm's epsilon must be between 0 and 1, got {config.norm_eps}")
    for window in config.windows:
        if window is not None and window < 1:
            raise CheckpointError(f"sliding_window must be at least 1, got {window}")
