"""What llama.cpp's converter does to each architecture: names, metadata and order, to be reversed.

Every architecture is an entry of ARCHITECTURES. The configuration becomes the entries of a config.json,
and the tensors get transformers' names, so the rest of the engine sees a Hugging Face model.

Source: llama.cpp's converter (`conversion/`) and loader (`src/llama-model.cpp`), and the constants of
the `gguf` package.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.models.weights.checkpoint import CheckpointError
from engine.models.weights.gguf_file import TensorInfo


@dataclass(frozen=True, slots=True)
class Architecture:
    """One value of `general.architecture`.

    name         the class in transformers
    tensors      names beyond those of `TENSORS`, or instead of them: transformers' -> GGUF's. `*` is
                 the number of an expert; GGUF stacks the experts' matrices as [experts, out, in],
                 and their biases as [experts, out]
    entries      entries beyond those of `ENTRIES`: of config.json -> of the metadata
    constants    entries of config.json that are the same for every model
    rope         entries of the rotation's scaling that are the same for every model
    derived      entries of config.json that are computed from the metadata
    neighbours   queries and keys rotate pairs of neighbours, as in the original Llama; transformers
                 pairs value i of a head with i + head_dim / 2, so their rows have another order
    norm_offset  what the converter added to the weights of norms (Gemma: 1)
    """

    name: str
    tensors: Mapping[str, str] = field(default_factory=dict)
    entries: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    rope: Mapping[str, Any] = field(default_factory=dict)
    derived: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    neighbours: bool = False
    norm_offset: float = 0.0


def _phi3(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of each head that is rotated."""
    head_dim = own.get("embedding_length", 0) // max(own.get("attention.head_count", 1), 1)
    rotated = own.get("rope.dimension_count", head_dim)
    return {"partial_rotary_factor": rotated / max(head_dim, 1)}


def _mistral3(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class: the converter writes Mistral Small 3 as the same architecture."""
    scaled = "attention.temperature_scale" in own
    return {} if scaled else {"architectures": ["MistralForCausalLM"]}


def _olmo2(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class, which depends on windows, and the layers that have one."""
    if not own.get("attention.sliding_window"):
        return {}
    return {"architectures": ["Olmo3ForCausalLM"], **_windows(own, 4)}


def _windows(own: Mapping[str, Any], default: int) -> dict[str, Any]:
    """Return the layers with a window: a list in the file, or every layer but each n-th."""
    pattern = own.get("attention.sliding_window_pattern", default)
    if not isinstance(pattern, list):
        return {"sliding_window_pattern": pattern}
    return {"layer_types": ["sliding_attention" if one else "full_attention" for one in pattern]}


def _gemma3(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layers with a window, and the scale of queries, as llama.cpp knows them.

    Neither is in the file. Queries are scaled by the size of a head in all models but the one with 62
    layers (27B).
    """
    scalar = own.get("attention.key_length", 256)
    if own.get("block_count") == 62:
        scalar = own["embedding_length"] // own["attention.head_count"]
    if not own.get("attention.sliding_window"):
        own = {"attention.sliding_window_pattern": 1}  # no layer has a window
    return {"query_pre_attn_scalar": scalar, **_windows(own, 6)}


_EXPERTS = {
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
}
_EXPERT_COUNTS = {"num_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}


def _gemma4(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes that differ by layer.

    The file lists them for each layer where a config.json has two numbers. Global layers have a number
    of KV heads of their own in exactly those models whose keys are also their values.
    """
    entries = _windows(own, 6) | {"enable_moe_block": bool(own.get("expert_count"))}
    if isinstance(kv_heads := own.get("attention.head_count_kv"), list):
        kinds = entries.get("layer_types", [])
        by_kind = dict(zip(kinds, kv_heads, strict=False))
        entries["num_key_value_heads"] = by_kind.get("sliding_attention", kv_heads[0])
        entries["num_global_key_value_heads"] = by_kind.get("full_attention")
        entries["attention_k_eq_v"] = True
    if isinstance(sizes := own.get("feed_forward_length"), list):
        entries["intermediate_size"] = sizes[0]
        entries["use_double_wide_mlp"] = sizes[-1] != sizes[0]
    return entries


ARCHITECTURES = {
    "llama": Architecture("LlamaForCausalLM", neighbours=True),
    "qwen2": Architecture("Qwen2ForCausalLM"),
    "qwen3": Architecture("Qwen3ForCausalLM"),
    "qwen3moe": Architecture(
        "Qwen3MoeForCausalLM",
        tensors={"mlp.gate": "ffn_gate_inp"} | _EXPERTS,
        entries=_EXPERT_COUNTS | {"moe_intermediate_size": "expert_feed_forward_length"},
        constants={"norm_topk_prob": True},
    ),
    "gpt-oss": Architecture(
        "GptOssForCausalLM",
        tensors={
            "self_attn.sinks": "attn_sinks",
            "post_attention_layernorm": "post_attention_norm",
            "mlp.router": "ffn_gate_inp",
        }
        | _EXPERTS,
        entries=_EXPERT_COUNTS,
        # As in every config.json of gpt-oss. It is not in the file, and llama.cpp truncates.
        rope={"truncate": False},
        derived=lambda own: _windows(own, 2),
    ),
    "smollm3": Architecture("SmolLM3ForCausalLM", neighbours=True),
    "olmo2": Architecture(
        "Olmo2ForCausalLM",
        tensors={
            "post_attention_layernorm": "post_attention_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        },
        entries={"rope_local_base_freq": "rope.freq_base_swa"},
        derived=_olmo2,
    ),
    "mistral3": Architecture("Ministral3ForCausalLM", neighbours=True, derived=_mistral3),
    "phi3": Architecture(
        "Phi3ForCausalLM",
        tensors={"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
        entries={"original_max_position_embeddings": "rope.scaling.original_context_length"},
        derived=_phi3,
    ),
    "gemma3": Architecture(
        "Gemma3ForCausalLM",
        tensors={
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        },
        entries={
            "rope_local_base_freq": "rope.freq_base_swa",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        derived=_gemma3,
        norm_offset=1.0,
    ),
    "gemma4": Architecture(
        "Gemma4ForCausalLM",
        tensors={
            "model.embed_tokens_per_layer": "per_layer_token_embd",
            "model.per_layer_model_projection": "per_layer_model_proj",
            "model.per_layer_projection_norm": "per_layer_proj_norm",
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
            "per_layer_input_gate": "inp_gate",
            "per_layer_projection": "proj",
            "post_per_layer_input_norm": "post_norm",
            "layer_scalar": "layer_output_scale",
            "router.proj": "ffn_gate_inp",
            "experts.*.gate_up_proj": "ffn_gate_up_exps",
            "experts.*.down_proj": "ffn_down_exps",
            "post_feedforward_layernorm_1": "post_ffw_norm_1",
            "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
            "post_feedforward_layernorm_2": "post_ffw_norm_2",
        },
        entries={
            "num_experts": "expert_count",
            "top_k_experts": "expert_used_count",
            "moe_intermediate_size": "expert_feed_forward_length",
            "head_dim": "attention.key_length_swa",
            "global_head_dim": "attention.key_length",
            "num_kv_shared_layers": "attention.shared_kv_layers",
            "hidden_size_per_layer_input": "embedding_length_per_layer_input",
            "rope_local_base_freq": "rope.freq_base_swa",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        derived=_gemma4,
    ),
}
TENSORS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ENTRIES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "sliding_window": "attention.sliding_window",
}
# Not weights: the factors of rotary frequencies; see `_rope`.
ROPE_FACTORS = {
    "rope_freqs.weight": "factors",
    "rope_factors_short.weight": "short_factor",
    "rope_factors_long.weight": "long_factor",
}


def find_architecture(fields: Mapping[str, Any]) -> Architecture:
    """Return the file's architecture. Raises CheckpointError if it is not supported."""
    kind = fields.get("general.architecture")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise CheckpointError(
            f"GGUF architecture {kind or '(none is named)'} is not supported; supported are "
            + ", ".join(sorted(ARCHITECTURES))
        )
    return ARCHITECTURES[kind]


def config_entries(
    fields: Mapping[str, Any],
    tensors: Mapping[str, TensorInfo],
    rope_factors: Mapping[str, list[float]],
) -> dict[str, Any]:
    """Return the entries that config.json would have.

    tensors       the file's tensors, under GGUF's names
    rope_factors  the values of the tensors in ROPE_FACTORS, under the names of their entries

    Raises CheckpointError, which names the field, for what is not supported.
    """
    architecture = find_architecture(fields)
    prefix = f"{fields['general.architecture']}."
    own = {name.removeprefix(prefix): value for name, value in fields.items()}
    entries = ENTRIES | dict(architecture.entries)
    found = {ours: own[theirs] for ours, theirs in entries.items() if theirs in own}
    if not found.get("sliding_window"):
        found["sliding_window"] = None
    head_dim = own.get("attention.key_length")
    for name in ("attention.value_length", "rope.dimension_count"):
        if head_dim is not None and own.get(name, head_dim) != head_dim:
            raise CheckpointError(
                f"{prefix}{name} = {own[name]} is not supported, only {head_dim}, the size of a head"
            )
    if own.get("expert_count") and "num_experts" not in found:
        raise CheckpointError(
            f"{prefix}expert_count = {own['expert_count']} is not supported: use a model of this "
            "architecture without experts"
        )
    layers = own.get("block_count", 0)
    if not isinstance(layers, int) or layers > len(tensors):
        raise CheckpointError(
            f"{prefix}block_count = {layers}, but there are {len(tensors)} tensors"
        )
    embedding, per_layer = (
        tensors.get(f"{name}.weight") for name in ("token_embd", "per_layer_token_embd")
    )
    rope = _rope(own, prefix, rope_factors)
    is_mistral = architecture.name == "LlamaForCausalLM" and found["sliding_window"]
    return {
        "architectures": ["MistralForCausalLM" if is_mistral else architecture.name],
        "vocab_size": embedding.shape[0] if embedding else 0,
        "vocab_size_per_layer_input": per_layer.shape[0] if per_layer else None,
        "tie_word_embeddings": "output.weight" not in tensors,
        "rope_scaling": rope and {**rope, **architecture.rope},
        **architecture.constants,
        **found,
        **(architecture.derived(own) if architecture.derived else {}),
    }


def _rope(
    own: Mapping[str, Any], prefix: str, rope_factors: Mapping[str, list[float]]
) -> dict[str, Any] | None:
    """Return config.json's `rope_scaling`.

    For Llama 3's scaling, the converter computes a factor for each frequency and stores them as a
    tensor; its settings are not in the file. The factors of longrope (Phi-3) are tensors, too.
    """
    kind, factor = own.get("rope.scaling.type"), own.get("rope.scaling.factor")
    if kind is None and factor:
        kind = "linear"  # llama.cpp's default
    if rope_factors:
        longrope = "factors" not in rope_factors
        if kind not in (None, "none", "longrope"):
            raise CheckpointError(
                f"{prefix}rope.scaling.type = {kind!r} beside one of {', '.join(ROPE_FACTORS)}"
            )
        if longrope:
            attention_factor = own.get("rope.scaling.attn_factor")
            return {"rope_type": "longrope", **rope_factors, "attention_factor": attention_factor}
        return {"rope_type": "factors", **rope_factors, "factor": max(rope_factors["factors"])}
    if kind in (None, "none"):
        return None
    if kind == "linear":
        return {"rope_type": kind, "factor": factor}
    if kind == "yarn":
        names = {
            "original_max_position_embeddings": "original_context_length",
            "attention_factor": "yarn_attn_factor",
            "beta_fast": "yarn_beta_fast",
            "beta_slow": "yarn_beta_slow",
            "mscale_all_dim": "yarn_log_multiplier",
        }
        values = {ours: own.get(f"rope.scaling.{theirs}") for ours, theirs in names.items()}
        if (beta := own.get("attention.temperature_scale")) is not None:
            values["llama_4_scaling_beta"] = beta
        return {"rope_type": kind, "factor": factor, "mscale": 1.0, **values}
    raise CheckpointError(
        f"{prefix}rope.scaling.type = {kind!r} is not supported in a GGUF file: use the Hugging Face "
        "directory of this model"
    )


def hf_tensors(
    architecture: Architecture, tensors: Mapping[str, TensorInfo]
) -> dict[str, TensorInfo]:
    """Return the tensors under transformers' names; stacked experts become a tensor for each.

    Unknown names are kept. They are reported as unused when the model has been built.
    """
    to_hf = {theirs: ours for ours, theirs in (TENSORS | dict(architecture.tensors)).items()}
    found: dict[str, TensorInfo] = {}
    for name, tensor in tensors.items():
        stem, _, suffix = name.rpartition(".")
        layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
        part = layer[2] if layer else stem
        renamed = f"{to_hf.get(part, part)}.{suffix}".replace("sinks.weight", "sinks")
        if layer:
            renamed = f"model.layers.{layer[1]}.{renamed}"
        if "*" in renamed and len(tensor.shape) > 1:
            experts = range(tensor.shape[0])
            found |= {renamed.replace("*", str(expert)): tensor[expert] for expert in experts}
        else:
            found[renamed] = tensor
    return found
