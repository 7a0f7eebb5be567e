"""The differences between the supported architectures.

All of them are Llama decoders, with a few switches per family. The other files read the switches and
never compare names. A family without a row of its own, such as SmolLM2 or Llama 3.2, is a Llama model;
its special features (tied embeddings, few KV heads) are entries of its config.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple


class Norms(NamedTuple):
    """The names of a layer's norms; None where a family has none.

    A layer computes x += after(attention(before(x))), then the same with its feed-forward network.
    """

    before_attention: str | None = "input_layernorm"
    after_attention: str | None = None
    before_feed_forward: str | None = "post_attention_layernorm"
    after_feed_forward: str | None = None


_LLAMA = Norms()


@dataclass(frozen=True, slots=True)
class Family:
    """One Llama-style architecture.

    norms             where a layer's norms are: before its two networks (Llama), after them (OLMo 2,
                      arXiv:2501.00656) or on both sides (Gemma 3, arXiv:2503.19786)
    norm_offset       added to the weights of norms; Gemma stores them minus one
    qk_norm           queries and keys are normalised before they are rotated: each head by itself
                      (Qwen3, arXiv:2505.09388) or all heads together (OLMo 2)
    qkv_bias          queries, keys and values have a bias (Qwen2, arXiv:2407.10671)
    fused             the checkpoint stores queries, keys and values as one matrix, and gate and up as
                      another (Phi-3, arXiv:2404.14219)
    partial_rotary    config.json may limit the rotation to a part of each head (Phi-4-mini)
    scaled_embedding  embeddings are multiplied by sqrt(hidden_size) (Gemma)
    windowed          layers that see only the last `sliding_window` tokens: none, all (Mistral,
                      arXiv:2310.06825), or those that `layer_types` lists. Without that list, the
                      entry named here decides; see `config_llama.py`
    plain_windows     layers with a window rotate without the scaling that the others have (OLMo 3,
                      arXiv:2512.13961)
    scaled_queries    queries grow with their position, see `QueryScaling` (Ministral 3,
                      arXiv:2601.08584)
    sinks             heads have attention sinks, see `attend_with_sinks` (gpt-oss, arXiv:2508.10925)
    clamped_experts   the experts are those of gpt-oss, see `ClampedFeedForward`. They have biases and
                      take the place of every dense network, and the router has a bias, too
    defaults          entries that a config.json may leave out because transformers knows them
    text_prefix       what the names of the decoder's tensors start with in a model that also has
                      other parts. Those parts, and their entries in config.json, are not read
    text_kinds        in such a model, the decoder's architecture by the model_type of its text_config
    body              what comes between that and the names of the layers
    """

    norms: Norms = _LLAMA
    norm_offset: float = 0.0
    qk_norm: Literal["head", "projection"] | None = None
    qkv_bias: bool = False
    fused: bool = False
    partial_rotary: bool = False
    scaled_embedding: bool = False
    windowed: (
        Literal["all", "max_window_layers", "sliding_window_pattern", "no_rope_layers"] | None
    ) = None
    plain_windows: bool = False
    scaled_queries: bool = False
    sinks: bool = False
    clamped_experts: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    text_prefix: str = ""
    text_kinds: Mapping[str, str] = field(default_factory=dict)
    body: str = "model."


_GEMMA3 = Family(
    norms=Norms(
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
    norm_offset=1.0,
    qk_norm="head",
    scaled_embedding=True,
    windowed="sliding_window_pattern",
    defaults={
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "query_pre_attn_scalar": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
    },
)
_OLMO2 = Family(
    norms=Norms(None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    qk_norm="projection",
    defaults={"rms_norm_eps": 1e-5},
)
_GEMMA4 = replace(
    _GEMMA3,
    norm_offset=0.0,
    defaults={
        "vocab_size": 262_144,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 30,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262_144,
        "sliding_window": 512,
        "tie_word_embeddings": True,
    },
)
_GEMMA4_PARTS = replace(_GEMMA4, text_prefix="model.language_model.", body="")
_QWEN = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}

FAMILIES = {
    "LlamaForCausalLM": Family(),
    "MistralForCausalLM": Family(windowed="all", defaults={"sliding_window": 4096}),
    "Ministral3ForCausalLM": Family(
        windowed="all",
        scaled_queries=True,
        defaults={
            "num_key_value_heads": 8,
            "head_dim": 128,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1_000_000.0,
                "factor": 16.0,
                "original_max_position_embeddings": 16_384,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
        },
    ),
    "Mistral3ForConditionalGeneration": Family(
        defaults={"tie_word_embeddings": True},
        text_prefix="language_model.",
        text_kinds={"mistral": "MistralForCausalLM", "ministral3": "Ministral3ForCausalLM"},
    ),
    "Qwen2ForCausalLM": Family(qkv_bias=True, windowed="max_window_layers", defaults=_QWEN),
    "Qwen3ForCausalLM": Family(
        qk_norm="head", windowed="max_window_layers", defaults=_QWEN | {"head_dim": 128}
    ),
    "Qwen3MoeForCausalLM": Family(qk_norm="head", windowed="all", defaults=_QWEN),
    "Phi3ForCausalLM": Family(
        fused=True,
        partial_rotary=True,
        windowed="all",
        defaults={"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    ),
    "SmolLM3ForCausalLM": Family(
        windowed="no_rope_layers",
        defaults={
            "rope_theta": 2_000_000.0,
            "num_key_value_heads": 4,
            "no_rope_layer_interval": 4,
            "use_sliding_window": False,
            "tie_word_embeddings": True,
        },
    ),
    "Olmo2ForCausalLM": _OLMO2,
    "Olmo3ForCausalLM": replace(
        _OLMO2,
        windowed="sliding_window_pattern",
        plain_windows=True,
        defaults={
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "sliding_window": 4096,
            "sliding_window_pattern": 4,
        },
    ),
    "GptOssForCausalLM": Family(
        windowed="sliding_window_pattern",
        sinks=True,
        clamped_experts=True,
        defaults={
            "num_key_value_heads": 8,
            "head_dim": 64,
            "rms_norm_eps": 1e-5,
            "attention_bias": True,
            "mlp_bias": True,
            "sliding_window": 128,
            "sliding_window_pattern": 2,
            "num_experts": 128,
            "num_experts_per_tok": 4,
            "norm_topk_prob": True,
            "rope_theta": 150_000.0,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 32.0,
                "original_max_position_embeddings": 4096,
                "truncate": False,
            },
        },
    ),
    "DeepseekV2ForCausalLM": Family(),
    "DeepseekV3ForCausalLM": Family(),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": replace(_GEMMA3, text_prefix="language_model."),
    "Gemma4ForCausalLM": _GEMMA4,
    "Gemma4ForConditionalGeneration": _GEMMA4_PARTS,
    "Gemma4UnifiedForConditionalGeneration": replace(
        _GEMMA4_PARTS,
        defaults=dict(_GEMMA4.defaults)
        | {
            "hidden_size_per_layer_input": 0,
            "sliding_window": 1024,
            "max_position_embeddings": 262_144,
        },
    ),
}
