"""The sizes and switches of a decoder, read from a Hugging Face `config.json` and checked.

Everything a config.json can ask for is either honoured or refused by name: a switch that is
silently ignored gives a model that runs and talks nonsense.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine.compute.checkpoint import CheckpointError
from engine.compute.families import FAMILIES, Family
from engine.compute.rope_scaling import RopeScaling, YarnScaling, read_scaling


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder of the Llama and Qwen kind.

    num_heads heads of queries share num_kv_heads heads of keys and values (grouped-query attention);
    max_context is the longest text, prompt and output, that the positions were made for; window is how
    many tokens each token sees, itself included, None for all before it.
    """

    architecture: str
    family: Family
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_context: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    tied_embeddings: bool
    window: int | None


class _ConfigFile(msgspec.Struct):
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
    rope_parameters: dict[str, Any] | None = None  # transformers 5 puts all of RoPE in here
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    use_sliding_window: bool = False  # Qwen's switch, for some of the layers
    sliding_window: int | None = 4096  # Mistral's, for all
    quantization_config: dict[str, Any] | None = None


def read_config(directory: Path) -> ModelConfig:
    """The configuration in `directory`. Raises CheckpointError, naming the entry, if it cannot run."""
    file = directory / "config.json"
    if not file.is_file():
        raise CheckpointError(
            f"{directory} has no config.json: give the directory of a Hugging Face model"
        )
    content = file.read_bytes()
    try:
        architectures = msgspec.json.decode(content, type=dict[str, Any]).get("architectures")
        _check_architecture(file, architectures)
        entries = msgspec.json.decode(content, type=_ConfigFile)
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{file}: {error}") from error
    _check_supported(file, entries)
    rope = entries.rope_parameters or entries.rope_scaling or {}
    try:
        scaling = read_scaling(rope, entries.max_position_embeddings)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from error
    max_context = entries.max_position_embeddings
    if isinstance(scaling, YarnScaling):
        # Qwen's models state the length before the scaling that their users add.
        stretched = int(scaling.original_max_position_embeddings * scaling.factor)
        max_context = max(max_context, stretched)
    family = FAMILIES[entries.architectures[0]]
    kv_heads = entries.num_key_value_heads or entries.num_attention_heads
    config = ModelConfig(
        architecture=entries.architectures[0],
        family=family,
        vocab_size=entries.vocab_size,
        hidden_size=entries.hidden_size,
        intermediate_size=entries.intermediate_size,
        num_layers=entries.num_hidden_layers,
        num_heads=entries.num_attention_heads,
        num_kv_heads=kv_heads,
        head_dim=entries.head_dim or entries.hidden_size // entries.num_attention_heads,
        max_context=max_context,
        norm_eps=entries.rms_norm_eps,
        rope_theta=float(rope.get("rope_theta") or entries.rope_theta or 10_000.0),
        rope_scaling=scaling,
        tied_embeddings=entries.tie_word_embeddings,
        window=entries.sliding_window if family.window else None,
    )
    _check_sizes(file, config)
    return config


def _check_architecture(file: Path, architectures: object) -> None:
    if not isinstance(architectures, list) or not architectures:
        raise CheckpointError(f"{file}: architectures is missing, so the model's kind is unknown")
    if architectures[0] not in FAMILIES:
        raise CheckpointError(
            f"{file}: architecture {architectures[0]} is not supported; supported are "
            + ", ".join(sorted(FAMILIES))
        )


def _check_supported(file: Path, entries: _ConfigFile) -> None:
    for entry, value, supported in (
        ("hidden_act", entries.hidden_act, "silu"),
        ("attention_bias", entries.attention_bias, False),
        ("mlp_bias", entries.mlp_bias, False),
        ("use_sliding_window", entries.use_sliding_window, False),
        ("quantization_config", entries.quantization_config, None),
    ):
        if value != supported:
            raise CheckpointError(
                f"{file}: {entry} = {value!r} is not supported, only {supported!r}"
            )


def _check_sizes(file: Path, config: ModelConfig) -> None:
    for name in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_layers",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "max_context",
    ):
        if getattr(config, name) < 1:
            raise CheckpointError(f"{file}: {name} must be at least 1, got {getattr(config, name)}")
    if config.num_heads % config.num_kv_heads:
        raise CheckpointError(
            f"{file}: num_attention_heads ({config.num_heads}) must be a multiple of "
            f"num_key_value_heads ({config.num_kv_heads})"
        )
    if config.window is not None and config.window < 1:
        raise CheckpointError(f"{file}: sliding_window must be at least 1, got {config.window}")
    if config.head_dim % 2:
        raise CheckpointError(f"{file}: head_dim must be even, got {config.head_dim}")
