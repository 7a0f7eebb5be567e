"""Read the config.json of a Llama-like model, with the switches of its family (`families.py`)."""

import math
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import structs

from engine.models.config import LlamaConfig, check_entries
from engine.models.families import FAMILIES, Family
from engine.models.layers import ACTIVATIONS
from engine.models.rope import QueryScaling, Rope
from engine.models.rope_scaling import YarnScaling, read_scaling
from engine.models.weights.checkpoint import CheckpointError

_FULL, _SLIDING = "full_attention", "sliding_attention"  # the two kinds of `layer_types`


class _LlamaFile(msgspec.Struct):
    """The entries of config.json that are read. Defaults are Llama's; see `Family.defaults`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    hidden_activation: str | None = None  # Gemma's name for it
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    lm_head_bias: bool = False
    query_pre_attn_scalar: float | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    use_bidirectional_attention: bool | None = None

    rope_theta: float = 10_000.0
    rope_local_base_freq: float | None = None  # Gemma 3's, for layers with a window
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None  # has all RoPE settings since transformers 5
    partial_rotary_factor: float = 1.0
    original_max_position_embeddings: int | None = None
    no_rope_layers: list[int] | None = None  # SmolLM3's: 0 for a layer that rotates nothing
    no_rope_layer_interval: int = 0

    layer_types: list[str] | None = None
    sliding_window: int | None = None
    use_sliding_window: bool = True
    max_window_layers: int = 0
    sliding_window_pattern: int = 1

    num_experts: int = 0  # the entries of Qwen3-MoE
    num_local_experts: int = 0  # the name since transformers 5
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    norm_topk_prob: bool = False
    decoder_sparse_step: int = 1
    mlp_only_layers: list[int] | None = None
    swiglu_alpha: float = 1.702  # gpt-oss's
    swiglu_limit: float = 7.0


def read_llama(architecture: str, entries: dict[str, Any]) -> LlamaConfig:
    """Convert the entries of a config.json; see `parse_config`."""
    family = FAMILIES[architecture]
    if family.text_prefix:
        family, entries = _text(family, entries)
    file = msgspec.convert({**family.defaults, **entries}, _LlamaFile)
    if family.clamped_experts:
        file = structs.replace(file, moe_intermediate_size=file.intermediate_size)
    activation = file.hidden_activation or file.hidden_act
    if activation not in ACTIVATIONS:
        name = "hidden_activation" if file.hidden_activation else "hidden_act"
        raise CheckpointError(
            f"{name} = {activation!r} is not supported, only {', '.join(ACTIVATIONS)}"
        )
    check_entries(
        ("attn_logit_softcapping", file.attn_logit_softcapping, None),
        ("final_logit_softcapping", file.final_logit_softcapping, None),
        ("use_bidirectional_attention", file.use_bidirectional_attention or False, False),
        ("lm_head_bias", file.lm_head_bias, False),
    )
    head_dim = file.head_dim or file.hidden_size // max(file.num_attention_heads, 1)
    if head_dim % 2:
        raise CheckpointError(f"head_dim must be even, got {head_dim}")
    scalar = file.query_pre_attn_scalar or head_dim
    rotated, sliding = _rotated(file), _sliding(file, family)
    # transformers, too, prefers the older name where a file has both.
    parameters = dict(file.rope_scaling or file.rope_parameters or {})
    query_scaling = _take_query_scaling(parameters) if family.scaled_queries else None
    ropes = _ropes(file, family, head_dim, parameters)
    sparse = _sparse(file)
    if family.qk_norm and (not all(rotated) or any(one.size < head_dim for one in ropes.values())):
        # `Attention` writes normalised values back as it rotates them.
        raise CheckpointError(
            "no_rope_layers and partial_rotary_factor are not supported for architectures that "
            f"normalise queries and keys, such as {architecture}"
        )
    return LlamaConfig(
        architecture=architecture,
        vocab_size=file.vocab_size,
        hidden_size=file.hidden_size,
        intermediate_size=file.intermediate_size,
        num_layers=file.num_hidden_layers,
        num_heads=file.num_attention_heads,
        num_kv_heads=file.num_key_value_heads or file.num_attention_heads,
        head_dim=head_dim,
        max_context=_max_context(file, ropes[_FULL]),
        norm_eps=file.rms_norm_eps,
        tied_embeddings=file.tie_word_embeddings,
        windows=tuple(file.sliding_window if slides else None for slides in sliding),
        family=family,
        activation=activation,
        # transformers reads attention_bias only in families without a bias of their own.
        qkv_bias=family.qkv_bias or file.attention_bias,
        output_bias=file.attention_bias and not family.qkv_bias,
        mlp_bias=file.mlp_bias,
        query_scale=math.sqrt(head_dim / scalar),
        query_scaling=query_scaling,
        ropes=tuple(
            ropes[_SLIDING if slides else _FULL] if rotates else None
            for slides, rotates in zip(sliding, rotated, strict=True)
        ),
        num_experts=file.num_local_experts or file.num_experts,
        experts_per_token=file.num_experts_per_tok,
        swiglu=(file.swiglu_alpha, file.swiglu_limit),
        expert_size=file.moe_intermediate_size,
        norm_topk_prob=file.norm_topk_prob,
        sparse_layers=sparse,
    )


def _text(outer: Family, entries: dict[str, Any]) -> tuple[Family, dict[str, Any]]:
    """Return the family and the entries of the decoder in a model that also has other parts."""
    own = dict(entries.get("text_config") or {})
    family = outer
    if outer.text_kinds:
        kind = own.get("model_type")
        if not isinstance(kind, str) or kind not in outer.text_kinds:
            raise CheckpointError(
                f"model_type = {kind!r} in text_config is not supported, only "
                + " and ".join(outer.text_kinds)
            )
        family = replace(FAMILIES[outer.text_kinds[kind]], text_prefix=outer.text_prefix)
    for source in (outer.defaults, entries):
        if "tie_word_embeddings" in source:
            own["tie_word_embeddings"] = source["tie_word_embeddings"]
    return family, own


def _sliding(file: _LlamaFile, family: Family) -> list[bool]:
    """Return for each layer whether it has a window."""
    layers = range(file.num_hidden_layers)
    if family.windowed is None or not file.use_sliding_window:
        return [False for _ in layers]
    if family.windowed == "all":
        return [True for _ in layers]
    if file.layer_types is not None:
        if unknown := set(file.layer_types) - {_FULL, _SLIDING}:
            raise CheckpointError(
                f"layer_types with {min(unknown)!r} is not supported, only {_FULL} and {_SLIDING}"
            )
        _check_length("layer_types", file.layer_types, file)
        return [kind == _SLIDING for kind in file.layer_types]
    if family.windowed == "max_window_layers":
        return [layer >= file.max_window_layers for layer in layers]
    if family.windowed == "no_rope_layers":
        return [not rotates for rotates in _rotated(file)]
    # Each layer with this distance from the one before sees everything.
    return [(layer + 1) % max(file.sliding_window_pattern, 1) != 0 for layer in layers]


def _rotated(file: _LlamaFile) -> list[bool]:
    """Return for each layer whether it rotates queries and keys."""
    interval = file.no_rope_layer_interval
    if file.no_rope_layers is not None:
        _check_length("no_rope_layers", file.no_rope_layers, file)
        return [bool(rotates) for rotates in file.no_rope_layers]
    return [interval < 1 or (n + 1) % interval != 0 for n in range(file.num_hidden_layers)]


def _ropes(
    file: _LlamaFile, family: Family, head_dim: int, parameters: dict[str, Any]
) -> dict[str, Rope]:
    """Return the rotations of layers without and with a window."""
    full = {"rope_theta": file.rope_theta, **parameters}
    sliding = full
    local = file.rope_local_base_freq or (file.rope_theta if family.plain_windows else None)
    if local is not None:
        sliding = {"rope_theta": local}
        if parameters.keys() & {_FULL, _SLIDING}:
            full = {"rope_theta": file.rope_theta, **(parameters.get(_FULL) or {})}
            sliding |= parameters.get(_SLIDING) or {}
    return {
        _FULL: _rope(file, family, head_dim, full),
        _SLIDING: _rope(file, family, head_dim, sliding),
    }


def _take_query_scaling(parameters: dict[str, Any]) -> QueryScaling:
    """Remove the entries from `rope_parameters` that do not rotate, and return how queries grow."""
    parameters.pop("max_position_embeddings", None)  # transformers does not read it here
    beta = parameters.pop("llama_4_scaling_beta", None)
    length = parameters.get("original_max_position_embeddings")
    if not isinstance(beta, int | float) or not isinstance(length, int) or length < 1:
        raise CheckpointError(
            "rope_parameters must have llama_4_scaling_beta, a number, and "
            f"original_max_position_embeddings, at least 1, got {beta!r} and {length!r}"
        )
    return QueryScaling(beta, length)


def _rope(file: _LlamaFile, family: Family, head_dim: int, entries: dict[str, Any]) -> Rope:
    part = entries.get("partial_rotary_factor") or file.partial_rotary_factor
    if part != 1.0 and not family.partial_rotary:
        raise CheckpointError(
            f"partial_rotary_factor = {part} is not supported for this architecture, only 1.0"
        )
    size = int(head_dim * part)
    if size % 2 or not 0 < size <= head_dim:
        raise CheckpointError(
            f"partial_rotary_factor = {part} must rotate an even number of a head's {head_dim} "
            f"values, got {size}"
        )
    if file.original_max_position_embeddings is not None:
        original = file.original_max_position_embeddings
        entries = entries | {"original_max_position_embeddings": original}
    scaling = read_scaling(entries, file.max_position_embeddings, size)
    theta = float(entries["rope_theta"] or file.rope_theta)
    if not 1 < theta < math.inf:
        raise CheckpointError(f"rope_theta must be above 1, got {theta}")
    return Rope(theta, size, scaling)


def _max_context(file: _LlamaFile, rope: Rope) -> int:
    if isinstance(rope.scaling, YarnScaling):
        # Qwen's models state the length before scaling and leave the scaling to their users.
        stretched = int(rope.scaling.original_max_position_embeddings * rope.scaling.factor)
        return max(file.max_position_embeddings, stretched)
    return file.max_position_embeddings


def _sparse(file: _LlamaFile) -> tuple[bool, ...]:
    """Return for each layer whether it is a mixture of experts."""
    num_experts = file.num_local_experts or file.num_experts
    if num_experts and not 1 <= file.num_experts_per_tok <= num_experts:
        raise CheckpointError(
            f"num_experts_per_tok must be between 1 and num_experts ({num_experts}), got "
            f"{file.num_experts_per_tok}"
        )
    if num_experts and file.moe_intermediate_size < 1:
        raise CheckpointError(
            f"moe_intermediate_size must be at least 1, got {file.moe_intermediate_size}"
        )
    dense, step = file.mlp_only_layers or [], max(file.decoder_sparse_step, 1)
    return tuple(
        num_experts > 0 and layer not in dense and (layer + 1) % step == 0
        for layer in range(file.num_hidden_layers)
    )


def _check_length(name: str, values: list[Any], file: _LlamaFile) -> None:
    if len(values) != file.num_hidden_layers:
        raise CheckpointError(
            f"{name} must have an entry for each of the {file.num_hidden_layers} layers "
            f"(num_hidden_layers), got {len(values)}"
        )
