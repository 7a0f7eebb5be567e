"""Small random models with every switch of their family on, saved by transformers."""

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

SIZES = dict(
    vocab_size=97,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=256,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
    rms_norm_eps=0.0025,  # so large that it matters
)


def llama_with(**rope_parameters):
    """A Llama with its rotary frequencies scaled."""
    rope_parameters["rope_theta"] = 500.0
    return (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(**SIZES, rope_parameters=rope_parameters),
    )


def qwen3_moe_with(**changes):
    """A Qwen3 with 8 experts, 2 for each token."""
    experts = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24)
    config = transformers.Qwen3MoeConfig(**SIZES, **experts, rope_theta=5e3, **changes)
    return transformers.Qwen3MoeForCausalLM, config


GPT2_SIZES = dict(
    vocab_size=97,
    n_embd=48,
    n_inner=80,
    n_layer=3,
    n_head=3,
    n_positions=256,
    layer_norm_epsilon=0.0025,
    bos_token_id=None,
    eos_token_id=None,
)
MODELS = {
    "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config(**GPT2_SIZES)),
    "gpt2-untied": (
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(**GPT2_SIZES | {"n_inner": None}, tie_word_embeddings=False),
    ),
    "qwen3": (
        transformers.Qwen3ForCausalLM,
        transformers.Qwen3Config(**SIZES, rope_theta=5e3, tie_word_embeddings=True),
    ),
    "qwen3-untied": (
        transformers.Qwen3ForCausalLM,
        transformers.Qwen3Config(**SIZES, rope_theta=1e6, tie_word_embeddings=False),
    ),
    "qwen3-moe": qwen3_moe_with(norm_topk_prob=True),
    "qwen3-moe, dense layer": qwen3_moe_with(norm_topk_prob=False, mlp_only_layers=[1]),
    "llama": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(**SIZES, tie_word_embeddings=False),
    ),
    "llama-biases": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    ),
    "llama-mha-tied": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(
            **SIZES | {"num_key_value_heads": 6, "head_dim": None}, tie_word_embeddings=True
        ),
    ),
    "llama-linear": llama_with(rope_type="linear", factor=4.0),
    "llama-dynamic": llama_with(rope_type="dynamic", factor=4.0),
    "llama-llama3": llama_with(
        rope_type="llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=32,
    ),
    "llama-yarn": llama_with(
        rope_type="yarn", factor=8.0, original_max_position_embeddings=32, beta_fast=4.0
    ),
    "smollm": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(
            **SIZES | {"num_key_value_heads": 2, "head_dim": None},
            rope_theta=1e5,
            tie_word_embeddings=True,
        ),
    ),
    "qwen2-untied": (
        transformers.Qwen2ForCausalLM,
        transformers.Qwen2Config(
            **{k: v for k, v in SIZES.items() if k != "head_dim"}, rope_theta=1e6
        ),
    ),
    "qwen2-shared": (
        transformers.Qwen2ForCausalLM,
        transformers.Qwen2Config(
            **{k: v for k, v in SIZES.items() if k != "head_dim"}, tie_word_embeddings=True
        ),
    ),
    "mistral": (
        transformers.MistralForCausalLM,
        transformers.MistralConfig(**SIZES, sliding_window=9),
    ),
}

# Sizes without head_dim, which some families derive.
DERIVED = {k: v for k, v in SIZES.items() if k != "head_dim"}


def _gemma3(**entries):
    """A window of 8, a global layer in the middle, and a query scale unlike that of head_dim."""
    return transformers.Gemma3TextConfig(
        **SIZES,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        query_pre_attn_scalar=9,
        rope_theta=5e3,
        rope_local_base_freq=100.0,
        rope_scaling={"rope_type": "linear", "factor": 4.0},
        **entries,
    )


def _phi3(original, **entries):
    """Texts are longer than `original` in the parity table, or shorter."""
    factors = {"short_factor": [1.0, 1.5], "long_factor": [1.2, 3.0]}
    return transformers.Phi3Config(
        **DERIVED | {"num_attention_heads": 6, "num_key_value_heads": 2},
        rope_theta=500.0,
        partial_rotary_factor=0.5,
        original_max_position_embeddings=original,
        rope_scaling={"type": "longrope", **factors},
        **entries,
    )


MODELS |= {
    "gemma3": (transformers.Gemma3ForCausalLM, _gemma3()),
    "gemma3-untied-biases": (
        transformers.Gemma3ForCausalLM,
        _gemma3(tie_word_embeddings=False, attention_bias=True),
    ),
    "gemma3-with-vision": (
        transformers.Gemma3ForConditionalGeneration,
        transformers.Gemma3Config(
            text_config=_gemma3(),
            vision_config=dict(
                hidden_size=16,
                intermediate_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                image_size=28,
                patch_size=14,
            ),
            mm_tokens_per_image=4,
        ),
    ),
    "phi3": (
        transformers.Phi3ForCausalLM,
        transformers.Phi3Config(**DERIVED, sliding_window=9, rope_theta=500.0),
    ),
    "phi4-short-tied": (transformers.Phi3ForCausalLM, _phi3(1024, tie_word_embeddings=True)),
    "phi4-long": (transformers.Phi3ForCausalLM, _phi3(16)),
    "smollm3": (
        transformers.SmolLM3ForCausalLM,
        transformers.SmolLM3Config(**DERIVED, no_rope_layers=[1, 0, 1], rope_theta=500.0),
    ),
    "smollm3-untied-biases": (
        transformers.SmolLM3ForCausalLM,
        transformers.SmolLM3Config(
            **DERIVED,
            no_rope_layer_interval=3,  # a bias of keys does nothing in such a layer
            use_sliding_window=True,
            sliding_window=8,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=False,
        ),
    ),
    "olmo2": (transformers.Olmo2ForCausalLM, transformers.Olmo2Config(**DERIVED)),
    "qwen2-windowed": (
        transformers.Qwen2ForCausalLM,
        transformers.Qwen2Config(
            **DERIVED, use_sliding_window=True, sliding_window=8, max_window_layers=1
        ),
    ),
}


def save(directory, name, **save_options):
    """Make a model of this name with weights large enough to matter, save it, return it."""
    kind, config = MODELS[name]
    torch.manual_seed(sum(name.encode()))
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Norms start as ones and hide a norm that is left out; peaked logits make ties rare.
            spread = 0.3 if parameter.ndim == 1 else 0.15
            parameter.add_(torch.randn_like(parameter) * spread)
    model.save_pretrained(directory, **save_options)
    return model


def add_tokenizer(directory, size=97):
    """A byte-level tokenizer with the first `size` bytes as its vocabulary."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:size]
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))
