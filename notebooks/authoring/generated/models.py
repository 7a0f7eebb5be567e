"""The tables of docs/models.md, computed by the code that loads models."""

from typing import Any, get_args

import gguf
import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES

from engine.core.compute.device import Device, Precision
from engine.core.compute.model import kv_bytes_per_token
from engine.core.config import EngineConfig
from engine.models.byte_sizes import byte_size
from engine.models.config_file import SUPPORTED, parse_config
from engine.models.configurations import CONFIGURATIONS
from engine.models.kv_sizes import kv_sizes
from engine.models.memory import working_bytes
from engine.models.text.pre_tokenizers import SPLITS
from engine.models.weights.gguf_architectures import ARCHITECTURES

GB = 10**9
# What the operating system, a browser and an editor need beside the model.
_OTHERS = 4 * GB
_MACHINES = (8, 16, 32, 64)
# Enough KV for a handful of conversations.
_ENGINE = EngineConfig(max_kv_tokens=8192, token_budget=512)
_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope_theta": 1e6,
}


def _qwen3(hidden: int, inner: int, layers: int, heads: int, *, tied: bool) -> dict[str, Any]:
    return _QWEN3 | {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "tie_word_embeddings": tied,
    }


# Published shapes, as in config.json. Models of other families with as many parameters need as much.
MODELS = {
    "Qwen3-0.6B": _qwen3(1024, 3072, 28, 16, tied=True),
    "Qwen3-1.7B": _qwen3(2048, 6144, 28, 16, tied=True),
    "Qwen3-4B": _qwen3(2560, 9728, 36, 32, tied=True),
    "Qwen3-8B": _qwen3(4096, 12288, 36, 32, tied=False),
    "Qwen3-14B": _qwen3(5120, 17408, 40, 40, tied=False),
}
# File -> the precision of KV and computation, and the bytes of a weight in int8 or plain form, and in
# Q4_K. Those of quantized files depend on the types of `Int8Matrix` and `Int4Matrix`; KV is float32 on
# most CPUs.
_FILES = {
    "float32": (torch.float32, 4.0, 4.0),
    "bfloat16": (torch.bfloat16, 2.0, 2.0),
    "Q8_0 GGUF": (torch.float32, 1.01, 1.01),
    "Q4_K_M GGUF": (torch.float32, 1.01, 0.625),
}


def needed_bytes(entries: dict[str, Any], file: str) -> int:
    """Return the memory that a model needs with the settings of the page."""
    model = parse_config(entries)
    dtype, others, q4_k = _FILES[file]
    kv = _ENGINE.num_blocks * _ENGINE.block_size * kv_bytes_per_token(model, dtype)
    # In Q4_K_M files, Q4_K is the type of all layers but of half of the values and down projections.
    keys, inner = model.head_dim * model.num_kv_heads, model.intermediate_size
    layer = 2 * model.head_dim * model.num_heads + 1.5 * keys + 2.5 * inner
    in_q4_k = model.num_layers * model.hidden_size * layer
    weights = kv_sizes(entries).parameters * others - in_q4_k * (others - q4_k)
    return round(weights) + kv + working_bytes(model, _ENGINE, dtype)


def render() -> str:
    """Return the generated part of the page."""
    sizes = {
        model: [needed_bytes(entries, file) for file in _FILES] for model, entries in MODELS.items()
    }
    lines = [f"| model | {' | '.join(_FILES)} |", "|---|" + "---:|" * len(_FILES)]
    lines += [f"| {model} | {' | '.join(map(byte_size, row))} |" for model, row in sizes.items()]
    lines += ["", "| memory of the machine | largest model | file |", "|---|---|---|"]
    for memory in _MACHINES:
        fits = [
            (model, file)
            for model, row in sizes.items()
            for file, size in zip(_FILES, row, strict=True)
            if size + _OTHERS <= memory * GB
        ]
        model, file = fits[-1]  # the largest model; its smallest file comes last
        first = next(one for one in fits if one[0] == model)[1]
        files = file if first == file else f"{first} or smaller"
        lines.append(f"| {memory} GB | {model} | {files} |")
    lines += ["", *_users(), "", *_lists()]
    return "\n".join(lines) + "\n"


def _users() -> list[str]:
    """Return the table of users per model, from the configurations of the models."""
    numbers = "bytes per token", "int8", "KV of 8,192 tokens", "weights", "80 GB devices", "users"
    columns = ["model", "kind", *numbers, "int8", "configuration"]
    lines = [f"| {' | '.join(columns)} |", "|---|---|" + "---:|" * 7 + "---|"]
    for name, (entries, source) in CONFIGURATIONS.items():
        sizes = kv_sizes(entries)
        fit = sizes.fit(80 * GB, 8192)
        quantized = sizes.fit(80 * GB, 8192, kv_dtype="int8", devices=fit.devices)
        shorter = "" if fit.context == 8192 else f" ({fit.context:,})"
        cells = [
            name, sizes.kind, f"{sizes.per_token():,}", f"{sizes.per_token('int8'):,}",
            byte_size(sizes.per_sequence(fit.context)) + shorter, byte_size(sizes.weights),
            str(fit.devices), f"{fit.users:,}", f"{quantized.users:,}", source,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _lists() -> list[str]:
    """Return what is supported, one list a line."""
    names = {
        "Families": SUPPORTED,
        "Architectures of GGUF files": ARCHITECTURES,
        "Types of GGUF files": _types(),
        "Pre-tokenizers of GGUF files": SPLITS,
    }
    lists = {title: sorted(one) for title, one in names.items()}
    lists |= {"Precisions": list(get_args(Precision)), "Devices": list(get_args(Device))}
    return [f"- **{title}**: {', '.join(f'`{x}`' for x in one)}" for title, one in lists.items()]


def _types() -> list[str]:
    """Return the types that the gguf package can dequantize."""
    found: list[str] = []
    for kind, (_, size) in GGML_QUANT_SIZES.items():
        try:
            gguf.quants.dequantize(np.zeros((1, size), dtype=np.uint8), kind)
        except NotImplementedError:
            continue
        found.append(kind.name)
    return found
