"""Reject models with recurrent layers, with a message that says what is missing.

A recurrent layer (linear attention, Mamba, short convolution) sums the text so far up in a state of
constant size and keeps no KV of single tokens. The state cannot be cut back to a shorter text, so a
prefix cache, preemption and copy-on-write would each need snapshots of it. `docs/models.md` says how
vLLM keeps them.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from engine.models.weights.checkpoint import CheckpointError

# Entries of config.json's lists of layers, in transformers and in the files of the models' authors.
_RECURRENT = {"linear_attention", "conv", "mamba", "mamba2", "recurrent", "hybrid"}
_LISTS = ("layer_types", "layers_block_type", "block_types")
# How the classes begin whose config.json may lack such a list.
_CLASSES = re.compile(
    "Bamba|FalconH1|FalconMamba|GraniteMoeHybrid|Jamba|KimiLinear|Lfm2|Mamba|MiniMaxForC|MiniMaxText"
    "|NemotronH|OlmoHybrid|Qwen3Next|Qwen3_5|RecurrentGemma|Rwkv|Zamba"
)
# The tensors of such a layer in a GGUF file.
_TENSOR = re.compile(r"blk\.(\d+)\.(ssm|shortconv|time_mix)")
# Models with attention alone: layers * hidden_size^2, to which the size of a model is in proportion.
_ATTENTION_ONLY = {
    "Qwen/Qwen3-0.6B": 28 * 1024**2,
    "Qwen/Qwen3-1.7B": 28 * 2048**2,
    "Qwen/Qwen3-4B": 36 * 2560**2,
    "Qwen/Qwen3-8B": 36 * 4096**2,
    "Qwen/Qwen3-14B": 40 * 5120**2,
    "Qwen/Qwen3-32B": 64 * 5120**2,
}


def reject_recurrent(architecture: str, entries: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a config.json describes a model with recurrent layers.

    entries  of config.json; those of a model with images or sound are in its `text_config`
    """
    entries = {**entries, **(entries.get("text_config") or {})}
    kinds: list[str] = next((entries[name] for name in _LISTS if entries.get(name)), [])
    if found := [kind for kind in kinds if kind in _RECURRENT]:
        which = f"{len(found)} of its {len(kinds)} layers ({', '.join(sorted(set(found)))})"
    elif _CLASSES.match(architecture):
        which = "most or all of its layers"
    else:
        return
    layers, hidden = entries.get("num_hidden_layers") or len(kinds), entries.get("hidden_size")
    experts = entries.get("num_experts") or entries.get("num_local_experts")
    _reject(f"architecture {architecture}", which, layers, hidden, experts)


def reject_recurrent_file(fields: Mapping[str, Any], tensors: Collection[str]) -> None:
    """Raise CheckpointError if a GGUF file has recurrent layers.

    fields   the file's metadata
    tensors  the names of its tensors
    """
    found = [match for match in map(_TENSOR.match, tensors) if match]
    if not found:
        return
    kind = fields.get("general.architecture")
    layers, hidden, experts = (
        fields.get(f"{kind}.{name}") for name in ("block_count", "embedding_length", "expert_count")
    )
    which = f"{len({match[1] for match in found})} of its {layers} layers ({found[0][2]})"
    _reject(f"GGUF architecture {kind}", which, layers, hidden, experts)


def _reject(name: str, which: str, layers: object, hidden: object, experts: object) -> None:
    """Raise the error, which names a model of similar size that works."""
    size = layers * hidden**2 if isinstance(layers, int) and isinstance(hidden, int) else 0
    similar = min(_ATTENTION_ONLY, key=lambda model: abs(_ATTENTION_ONLY[model] - size))
    raise CheckpointError(
        f"{name} is not supported: {which} keep a recurrent state per request, but the blocks, the "
        "prefix cache and the preemption of this engine only hold the KV of tokens (see "
        "docs/models.md); use a model in which every layer is attention, such as "
        + ("Qwen/Qwen3-30B-A3B" if experts else similar)
    )
