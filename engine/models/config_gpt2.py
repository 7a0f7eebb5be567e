"""Read the config.json of a GPT-2 model."""

from typing import Any

import msgspec

from engine.core.compute.model import ModelConfig
from engine.models.config import check_entries
from engine.models.weights.checkpoint import CheckpointError

GPT2 = "GPT2LMHeadModel"


class _GPT2File(msgspec.Struct):
    """The entries of GPT-2's config.json that are read."""

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


def read_gpt2(architecture: str, entries: dict[str, Any]) -> ModelConfig:
    """Convert the entries of a config.json; see `parse_config`."""
    file = msgspec.convert(entries, _GPT2File)
    check_entries(
        ("activation_function", file.activation_function, "gelu_new"),
        ("scale_attn_weights", file.scale_attn_weights, True),
        ("scale_attn_by_inverse_layer_idx", file.scale_attn_by_inverse_layer_idx, False),
        ("add_cross_attention", file.add_cross_attention, False),
    )
    if file.n_head > 0 and file.n_embd % file.n_head:
        raise CheckpointError(
            f"n_embd ({file.n_embd}) must be a multiple of n_head ({file.n_head})"
        )
    return ModelConfig(
        architecture=architecture,
        vocab_size=file.vocab_size,
        hidden_size=file.n_embd,
        intermediate_size=file.n_inner or 4 * file.n_embd,
        num_layers=file.n_layer,
        num_heads=file.n_head,
        num_kv_heads=file.n_head,
        head_dim=file.n_embd // max(file.n_head, 1),
        max_context=file.n_positions,
        norm_eps=file.layer_norm_epsilon,
        tied_embeddings=file.tie_word_embeddings,
        windows=(None,) * file.n_layer,
    )
