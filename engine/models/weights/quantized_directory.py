"""Quantized Hugging Face directories are rejected by name, with what to use instead.

Each method has a layout and GPU kernels of its own. GGUF files are the quantized form that the engine
loads, and nearly every model is published as one.
"""

from collections.abc import Mapping
from typing import Any

from engine.models.weights.checkpoint import CheckpointError

# quant_method in config.json -> the method's name
_METHODS = {
    "awq": "AWQ",
    "gptq": "GPTQ",
    "bitsandbytes": "bitsandbytes",
    "fp8": "FP8",
    "fbgemm_fp8": "FP8",
    "compressed-tensors": "compressed-tensors",
    "mxfp4": "MXFP4",
}


def reject_quantized(entries: Mapping[str, Any]) -> None:
    """Raise CheckpointError if config.json has a `quantization_config`."""
    settings = entries.get("quantization_config") or entries.get("compression_config")
    if not settings:
        return
    method = settings.get("quant_method") if isinstance(settings, Mapping) else settings
    if method is None and ("load_in_4bit" in settings or "load_in_8bit" in settings):
        method = "bitsandbytes"  # its first versions did not name themselves
    raise CheckpointError(
        f"the weights are quantized by {_METHODS.get(str(method), 'an unknown method')} "
        f"(quantization_config.quant_method = {method!r}), which is not supported: use a GGUF file of "
        "this model, such as Q4_K_M or Q8_0, or the directory of the model before it was quantized"
    )
