"""The sizes and switches of a decoder, read from a Hugging Face `config.json` and validated.

Every entry of config.json that changes the computation is either supported or rejected by name. If
an entry were silently ignored, the model would run and write nonsense.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine.compute.model.families import FAMILIES, Family
from engine.compute.model.rope_scaling import RopeScaling, YarnScaling, read_scaling
from engine.compute.weights.checkpoint import CheckpointError

GPT2 = "GPT2LMHeadModel"
SUPPORTED = frozenset({*FAMILIES, GPT2})


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes of a decoder; GPT-2 needs no others.

    num_kv_heads  number of KV heads, shared by num_heads query heads (grouped-query attention)
    max_context   longest text (prompt plus output) that the position embeddings support
    window        number of tokens each token sees, including itself; None: all before it
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_context: int
    norm_eps: float
    tied_embeddings: bool
    window: int | None


@dataclass(frozen=True, slots=True)
class LlamaConfig(ModelConfig):
    """The configuration of a Llama-like decoder; see `families.py`, `rope.py`, `rope_scaling.py`."""

    family: Family
    rope_theta: float
    rope_scaling: RopeScaling | None


class _LlamaFile(msgspec.Struct):
    """The entries of config.json that are read; defaults are those of transformers."""

    architectures: list[str]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None  # has all RoPE settings since transformers 5
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    use_sliding_window: bool = False  # Qwen's, for some of the layers
    sliding_window: int | None = 4096  # Mistral's, for all layers
    quantization_config: dict[str, Any] | None = None


class _GPT2File(msgspec.Struct):
    """The entries of GPT-2's config.json that are read."""

    architectures: list[str]
    vocab_size: int
    n_positions: int
    n_embd: int
    n_layer: int
    n_head: int
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    add_cross_attention: bool = False
    tie_word_embeddings: bool = True
    quantization_config: dict[str, Any] | None = None


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
    architecture = _checked_architecture(entries.get("architectures"))
    try:
        config = (
            _gpt2(msgspec.convert(entries, _GPT2File))
            if architecture == GPT2
            else _llama(msgspec.convert(entries, _LlamaFile))
        )
    except msgspec.ValidationError as error:
        raise CheckpointError(str(error)) from error
    _check_sizes(config)
    return config


def _llama(entries: _LlamaFile) -> LlamaConfig:
    _check_supported(
        ("hidden_act", entries.hidden_act, "silu"),
        ("attention_bias", entries.attention_bias, False),
        ("mlp_bias", entries.mlp_bias, False),
        ("use_sliding_window", entries.use_sliding_window, False),
        ("quantization_config", entries.quantization_config, None),
    )
    family = FAMILIES[entries.architectures[0]]
    rope = entries.rope_parameters or entries.rope_scaling or {}
    scaling = read_scaling(rope, entries.max_position_embeddings)
    max_context = entries.max_position_embeddings
    if isinstance(scaling, YarnScaling):
        # Qwen's models state the length before scaling and leave the scaling to their users.
        stretched = int(scaling.original_max_position_embeddings * scaling.factor)
        max_context = max(max_context, stretched)
    config = LlamaConfig(
        architecture=entries.architectures[0],
        vocab_size=entries.vocab_size,
        hidden_size=entries.hidden_size,
        intermediate_size=entries.intermediate_size,
        num_layers=entries.num_hidden_layers,
        num_heads=entries.num_attention_heads,
        num_kv_heads=entries.num_key_value_heads or entries.num_attention_heads,
        head_dim=entries.head_dim or entries.hidden_size // max(entries.num_attention_heads, 1),
        max_context=max_context,
        norm_eps=entries.rms_norm_eps,
        tied_embeddings=entries.tie_word_embeddings,
        window=entries.sliding_window if family.window else None,
        family=family,
        rope_theta=float(rope.get("rope_theta") or entries.rope_theta or 10_000.0),
        rope_scaling=scaling,
    )
    if config.head_dim % 2:
        raise CheckpointError(f"head_dim must be even, got {config.head_dim}")
    return config


def _gpt2(entries: _GPT2File) -> ModelConfig:
    _check_supported(
        ("activation_function", entries.activation_function, "gelu_new"),
        ("scale_attn_weights", entries.scale_attn_weights, True),
        ("scale_attn_by_inverse_layer_idx", entries.scale_attn_by_inverse_layer_idx, False),
        ("add_cross_attention", entries.add_cross_attention, False),
        ("quantization_config", entries.quantization_config, None),
    )
    if entries.n_head > 0 and entries.n_embd % entries.n_head:
        raise CheckpointError(
            f"n_embd ({entries.n_embd}) must be a multiple of n_head ({entries.n_head})"
        )
    return ModelConfig(
        architecture=GPT2,
        vocab_size=entries.vocab_size,
        hidden_size=entries.n_embd,
        intermediate_size=entries.n_inner or 4 * entries.n_embd,
        num_layers=entries.n_layer,
        num_heads=entries.n_head,
        num_kv_heads=entries.n_head,
        head_dim=entries.n_embd // max(entries.n_head, 1),
        max_context=entries.n_positions,
        norm_eps=entries.layer_norm_epsilon,
        tied_embeddings=entries.tie_word_embeddings,
        window=None,
    )


def _checked_architecture(architectures: object) -> str:
    supported = f"supported are {', '.join(sorted(SUPPORTED))}"
    if not isinstance(architectures, list) or not architectures:
        raise CheckpointError(
            f"architectures is missing, so the kind of model is unknown; {supported}"
        )
    if architectures[0] not in SUPPORTED:
        raise CheckpointError(f"architecture {architectures[0]} is not supported; {supported}")
    return str(architectures[0])


def _check_supported(*entries: tuple[str, object, object]) -> None:
    """Check entries given as (name, value, the only supported value)."""
    for entry, value, supported in entries:
        if value != supported:
            raise CheckpointError(f"{entry} = {value!r} is not supported, only {supported!r}")


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
    if config.window is not None and config.window < 1:
        raise CheckpointError(f"sliding_window must be at least 1, got {config.window}")
