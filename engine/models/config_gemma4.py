"""Read the config.json of a Gemma 4 model, whose layers are of two kinds with sizes of their own.

Layers with a window are like those of Gemma 3. Global layers have larger heads, and fewer of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec

from engine.models.config import LlamaConfig, check_entries
from engine.models.config_llama import read_llama
from engine.models.families import FAMILIES
from engine.models.rope import Rope
from engine.models.rope_scaling import read_scaling
from engine.models.weights.checkpoint import CheckpointError

GEMMA4 = tuple(name for name in FAMILIES if name.startswith("Gemma4"))
_FULL, _SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma4Config(LlamaConfig):
    """The configuration of a Gemma 4 decoder.

    head_dim, num_kv_heads  of the layers with a window; `global_heads` are those of the others
    intermediate_size       of the widest feed-forward network
    feed_forward_sizes      [layers] inner sizes of the dense feed-forward networks
    per_layer_size          size of the input that each layer gets besides the residual stream; 0: none
    per_layer_rows          number of tokens that have one
    keys_are_values         in global layers, the projection of the keys is also that of the values
    logit_cap               logits stay below this limit; None: there is none
    """

    feed_forward_sizes: tuple[int, ...]
    per_layer_size: int
    per_layer_rows: int
    keys_are_values: bool
    logit_cap: float | None

    def of_layer(self, layer: int) -> "Gemma4Config":
        """Return the configuration that a layer would have if all others were like it."""
        kv_heads, head_dim = self.kv_shape(layer)
        return replace(
            self,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            query_scale=math.sqrt(head_dim),  # the trained queries need no 1 / sqrt(head_dim)
            intermediate_size=self.feed_forward_sizes[layer],
        )

    @property
    def unread(self) -> tuple[str, ...]:
        """The projections of layers that share KV: published files still have them."""
        body = self.family.text_prefix + self.family.body
        return tuple(
            f"{body}layers.{layer}.self_attn.{part}."
            for layer in range(len(self.layers_with_kv), self.num_layers)
            for part in ("k_proj", "v_proj", "k_norm")
        )


class _Gemma4File(msgspec.Struct):
    """The entries of config.json that Gemma 4 has in addition, or reads differently."""

    num_hidden_layers: int
    vocab_size: int
    head_dim: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    layer_types: list[str] | None = None
    global_head_dim: int = 512
    num_global_key_value_heads: int | None = None
    per_layer_config: dict[str, dict[str, Any]] | None = None  # what transformers writes now
    attention_k_eq_v: bool = False
    num_kv_shared_layers: int = 0
    use_double_wide_mlp: bool = False
    hidden_size_per_layer_input: int | None = None
    vocab_size_per_layer_input: int | None = None
    final_logit_softcapping: float | None = None
    enable_moe_block: bool = False
    num_experts: int | None = None
    top_k_experts: int | None = None
    moe_intermediate_size: int | None = None
    use_bidirectional_attention: str | None = None
    attention_bias: bool = False
    rope_parameters: dict[str, dict[str, Any]] | None = None
    # What a GGUF file has instead of rope_parameters.
    rope_theta: float = 1_000_000.0
    rope_local_base_freq: float = 10_000.0
    rope_scaling: dict[str, Any] | None = None


# Entries with another meaning than in Gemma 3's files.
_UNLIKE = {"final_logit_softcapping", "use_bidirectional_attention", "num_experts"}
_UNLIKE |= {"rope_parameters", "rope_scaling"}


def read_gemma4(architecture: str, entries: dict[str, Any]) -> Gemma4Config:
    """Convert the entries of a config.json; see `parse_config`."""
    family = FAMILIES[architecture]
    own = dict(entries.get("text_config") or {}) if family.text_prefix else entries
    file = msgspec.convert({**family.defaults, **own}, _Gemma4File)
    check_entries(("attention_bias", file.attention_bias, False))
    if file.use_bidirectional_attention == "all":
        raise CheckpointError("use_bidirectional_attention = 'all' is not supported, only 'vision'")
    layers, shared = file.num_hidden_layers, file.num_kv_shared_layers
    kinds = file.layer_types or [_SLIDING if (n + 1) % 6 else _FULL for n in range(layers)]
    kinds = [*kinds[:-1], _FULL]  # as in transformers
    if shared and (not 0 < shared < layers or set(kinds[-shared:]) - set(kinds[:-shared])):
        raise CheckpointError(
            f"num_kv_shared_layers = {shared}, but the first {layers - shared} layers must have one "
            "of each kind whose KV the others share"
        )
    size, rows = file.hidden_size_per_layer_input or 0, file.vocab_size_per_layer_input
    if size and rows is not None and rows < file.vocab_size:
        raise CheckpointError(
            f"vocab_size_per_layer_input ({rows}) must be at least vocab_size ({file.vocab_size})"
        )
    # What a Gemma 3 has as well; the rest is replaced below.
    plain = {k: v for k, v in own.items() if k not in _UNLIKE and v is not None}
    plain |= {"layer_types": kinds}
    base = read_llama(
        architecture, entries | {"text_config": plain} if family.text_prefix else plain
    )
    heads, ropes = _global_heads(file, kinds), _ropes(file)
    width = file.intermediate_size * (2 if file.use_double_wide_mlp and shared else 1)
    values = {field.name: getattr(base, field.name) for field in fields(base)}
    return Gemma4Config(
        **values
        | {
            "intermediate_size": width,
            "ropes": tuple(
                _rope(ropes[kind], base, heads[1] if kind == _FULL else file.head_dim)
                for kind in kinds
            ),
            "global_heads": None if heads == (base.num_kv_heads, base.head_dim) else heads,
            "num_kv_shared_layers": shared,
        }
        | _experts(file),
        feed_forward_sizes=tuple(
            file.intermediate_size if layer < layers - shared else width for layer in range(layers)
        ),
        per_layer_size=size,
        per_layer_rows=rows or file.vocab_size,
        keys_are_values=file.attention_k_eq_v,
        logit_cap=file.final_logit_softcapping,
    )


def _global_heads(file: _Gemma4File, kinds: list[str]) -> tuple[int, int]:
    """Return the number of KV heads of global layers and their size."""
    kv_heads = file.num_global_key_value_heads if file.attention_k_eq_v else None
    entries = {"head_dim": file.global_head_dim, "num_key_value_heads": kv_heads}
    if file.per_layer_config is not None:
        # transformers pads the numbers of the layers with zeros, "05" in a model with 12.
        own = {name.lstrip("0") or "0": sizes for name, sizes in file.per_layer_config.items()}
        entries = own.get(str(len(kinds) - 1), {})
        full = [str(layer) for layer, kind in enumerate(kinds) if entries and kind == _FULL]
        unknown = entries.keys() - {"head_dim", "num_key_value_heads"}
        if unknown or own != dict.fromkeys(full, entries):
            raise CheckpointError(
                f"per_layer_config = {file.per_layer_config} is not supported, only one head_dim and "
                "one num_key_value_heads for all layers with full_attention"
            )
    kv_heads = entries.get("num_key_value_heads") or file.num_key_value_heads
    head_dim = entries.get("head_dim") or file.head_dim
    if head_dim % 2 or head_dim < 2 or kv_heads < 1 or file.num_attention_heads % kv_heads:
        raise CheckpointError(
            f"global_head_dim ({head_dim}) must be even, and num_global_key_value_heads ({kv_heads}) "
            f"must divide num_attention_heads ({file.num_attention_heads})"
        )
    return kv_heads, head_dim


def _experts(file: _Gemma4File) -> dict[str, Any]:
    """Return the sizes of the mixtures of experts, which work beside the dense networks."""
    if not file.enable_moe_block:
        return {}
    count, used, size = file.num_experts or 0, file.top_k_experts or 0, file.moe_intermediate_size
    if not 1 <= used <= count or not size or size < 1:
        raise CheckpointError(
            f"top_k_experts ({used}) must be between 1 and num_experts ({count}), and "
            f"moe_intermediate_size ({size}) at least 1"
        )
    return {
        "num_experts": count,
        "experts_per_token": used,
        "expert_size": size,
        "norm_topk_prob": True,
    }


def _ropes(file: _Gemma4File) -> Mapping[str, dict[str, Any]]:
    """Return the rope_parameters of both kinds of layers."""
    full = {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": file.rope_theta,
    }
    if file.rope_scaling is not None:  # the factor of a frequency that is left out is 1e30
        factors = file.rope_scaling["factors"]
        full["partial_rotary_factor"] = sum(factor == 1 for factor in factors) / len(factors)
    sliding: dict[str, Any] = {"rope_theta": file.rope_local_base_freq}
    return {_FULL: full, _SLIDING: sliding} | (file.rope_parameters or {})


def _rope(parameters: dict[str, Any], base: LlamaConfig, head_dim: int) -> Rope:
    scaling = read_scaling(parameters, base.max_context, head_dim)
    theta = parameters.get("rope_theta")
    if not isinstance(theta, int | float) or not 1 < theta < math.inf:
        raise CheckpointError(f"rope_theta must be above 1, got {theta!r}")
    return Rope(float(theta), head_dim, scaling)
