"""Lesson 22: the bytes of KV that a sequence takes, from a model's configuration."""

from collections.abc import Mapping
from typing import Any


def kv_bytes(config: Mapping[str, Any], tokens: int, bytes_per_value: int) -> int:
    """Count the values that one token of one layer keeps, and the tokens that each layer keeps."""
    layers = config["num_hidden_layers"]
    if config.get("kv_lora_rank"):
        values = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    else:
        heads = config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // heads
        values = 2 * (config.get("num_key_value_heads") or heads) * size
    kinds = config.get("layer_types") or ["full_attention"] * layers
    window = config.get("sliding_window") or tokens
    kept = sum(min(tokens, window) if kind == "sliding_attention" else tokens for kind in kinds)
    return int(kept * values * bytes_per_value)
