"""Small random models with every switch of their family on, saved by transformers."""

from copy import deepcopy

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.lazy import transformers

# The epsilon of norms is so large that it matters.
SIZES = (
    dict(vocab_size=97, hidden_size=48, intermediate_size=80, num_hidden_layers=3, head_dim=16)
    | dict(num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=256)
    | dict(bos_token_id=None, eos_token_id=None, pad_token_id=None, rms_norm_eps=0.0025)
)
# Sizes without head_dim, which some families derive.
DERIVED = {k: v for k, v in SIZES.items() if k != "head_dim"}
GPT2_SIZES = dict(vocab_size=97, n_embd=48, n_inner=80, n_layer=3, n_head=3, n_positions=256)
GPT2_SIZES |= dict(layer_norm_epsilon=0.0025, bos_token_id=None, eos_token_id=None)
MHA = {"num_key_value_heads": 6, "head_dim": None}
EXPERTS = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24, rope_theta=5e3)
# A window of 8, a global layer in the middle, and a query scale unlike that of head_dim.
LAYER_TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
GEMMA3 = dict(sliding_window=8, layer_types=LAYER_TYPES, query_pre_attn_scalar=9, rope_theta=5e3)
GEMMA3 |= dict(rope_local_base_freq=100.0, rope_scaling=dict(rope_type="linear", factor=4.0))
# Both the queries' factors and the rotation change within the prompts of the parity table.
YARN = dict(rope_theta=500.0, factor=8.0, original_max_position_embeddings=16, beta_fast=4.0)
MINISTRAL3 = SIZES | {
    "rope_parameters": YARN
    | dict(rope_type="yarn", mscale=1.0, mscale_all_dim=0.5, llama_4_scaling_beta=0.3)
}
GEMMA4 = dict(
    num_hidden_layers=5, sliding_window=8, global_head_dim=32, final_logit_softcapping=8.0
)
KINDS = ("sliding", "full", "sliding", "sliding", "full")
GEMMA4 |= dict(layer_types=[f"{kind}_attention" for kind in KINDS], hidden_size_per_layer_input=0)
SHARED = dict(num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=8)
SHARED |= dict(vocab_size_per_layer_input=97, pad_token_id=0)
FEW_HEADS = dict(attention_k_eq_v=True, num_global_key_value_heads=1, pad_token_id=0)
GEMMA4_EXPERTS = dict(num_experts=8, top_k_experts=2, moe_intermediate_size=24)
GEMMA4_EXPERTS |= dict(enable_moe_block=True)
# MXFP4 has blocks of 32 values, and the limit below is reached by many of the experts' values.
GPT_OSS = (
    SIZES
    | dict(hidden_size=64, intermediate_size=32, sliding_window=8, num_local_experts=8)
    | dict(num_experts_per_tok=2, rope_scaling=dict(rope_type="yarn", truncate=False) | YARN)
)
# Every size differs from the others, and queries have a vector of their own in some models.
LATENT = dict(num_key_value_heads=6, kv_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=12)
LATENT |= dict(v_head_dim=10, q_lora_rank=None, first_k_dense_replace=3)
VISION = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
VISION |= dict(image_size=28, patch_size=14)
LLAMA3 = dict(low_freq_factor=1.0, high_freq_factor=4.0)


def _rope(rope_type, **parameters):
    return {"rope_parameters": dict(rope_type=rope_type, rope_theta=500.0, **parameters)}


def phi4(original):
    """Texts of the parity table are longer than `original`, or shorter."""
    factors = {"short_factor": [1.0, 1.5], "long_factor": [1.2, 3.0]}
    entries = dict(rope_theta=500.0, rope_scaling={"type": "longrope", **factors})
    return entries | dict(partial_rotary_factor=0.5, original_max_position_embeddings=original)


# name -> the model's class, and the entries of its configuration
MODELS = {
    "gpt2": ("GPT2LMHeadModel", GPT2_SIZES),
    "gpt2-untied": ("GPT2LMHeadModel", GPT2_SIZES | dict(n_inner=None, tie_word_embeddings=False)),
    "qwen3": ("Qwen3ForCausalLM", SIZES | dict(rope_theta=5e3, tie_word_embeddings=True)),
    "qwen3-untied": ("Qwen3ForCausalLM", SIZES | dict(rope_theta=1e6, tie_word_embeddings=False)),
    "qwen3-moe": ("Qwen3MoeForCausalLM", SIZES | EXPERTS | dict(norm_topk_prob=True)),
    "qwen3-moe, dense layer": (
        "Qwen3MoeForCausalLM",
        SIZES | EXPERTS | dict(norm_topk_prob=False, mlp_only_layers=[1]),
    ),
    "llama": ("LlamaForCausalLM", SIZES | dict(tie_word_embeddings=False)),
    "llama-biases": ("LlamaForCausalLM", SIZES | dict(attention_bias=True, mlp_bias=True)),
    "llama-mha-tied": ("LlamaForCausalLM", SIZES | MHA | dict(tie_word_embeddings=True)),
    "llama-linear": ("LlamaForCausalLM", SIZES | _rope("linear", factor=4.0)),
    "llama-dynamic": ("LlamaForCausalLM", SIZES | _rope("dynamic", factor=4.0)),
    "llama-llama3": (
        "LlamaForCausalLM",
        SIZES | _rope("llama3", factor=8.0, original_max_position_embeddings=32, **LLAMA3),
    ),
    "llama-yarn": (
        "LlamaForCausalLM",
        SIZES | _rope("yarn", factor=8.0, original_max_position_embeddings=32, beta_fast=4.0),
    ),
    "smollm": ("LlamaForCausalLM", DERIVED | dict(rope_theta=1e5, tie_word_embeddings=True)),
    "qwen2-untied": ("Qwen2ForCausalLM", DERIVED | dict(rope_theta=1e6)),
    "qwen2-shared": ("Qwen2ForCausalLM", DERIVED | dict(tie_word_embeddings=True)),
    "mistral": ("MistralForCausalLM", SIZES | dict(sliding_window=9)),
    "gemma3": ("Gemma3ForCausalLM", SIZES | GEMMA3),
    "gemma3-untied-biases": (
        "Gemma3ForCausalLM",
        SIZES | GEMMA3 | dict(tie_word_embeddings=False, attention_bias=True),
    ),
    "gemma3-with-vision": (
        "Gemma3ForConditionalGeneration",
        dict(text_config=SIZES | GEMMA3, vision_config=VISION, mm_tokens_per_image=4),
    ),
    "gemma4": ("Gemma4ForCausalLM", SIZES | GEMMA4 | SHARED),
    "gemma4-moe": ("Gemma4ForCausalLM", SIZES | GEMMA4 | FEW_HEADS | GEMMA4_EXPERTS),
    "gemma4-with-vision": (
        "Gemma4ForConditionalGeneration",
        dict(text_config=SIZES | GEMMA4 | SHARED, vision_config=None),
    ),
    "gemma4-keys-are-values": (
        "Gemma4UnifiedForConditionalGeneration",
        dict(text_config=SIZES | GEMMA4 | FEW_HEADS, vision_config=None),
    ),
    "phi3": ("Phi3ForCausalLM", DERIVED | dict(sliding_window=9, rope_theta=500.0)),
    "phi4-short-tied": ("Phi3ForCausalLM", DERIVED | phi4(1024) | dict(tie_word_embeddings=True)),
    "phi4-long": ("Phi3ForCausalLM", DERIVED | phi4(16)),
    "smollm3": ("SmolLM3ForCausalLM", DERIVED | dict(no_rope_layers=[1, 0, 1], rope_theta=500.0)),
    "smollm3-untied-biases": (
        "SmolLM3ForCausalLM",
        # A bias of keys does nothing in a layer that does not rotate.
        DERIVED
        | dict(no_rope_layer_interval=3, use_sliding_window=True, sliding_window=8)
        | dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
    ),
    "olmo2": ("Olmo2ForCausalLM", DERIVED),
    "olmo3": (
        "Olmo3ForCausalLM",
        DERIVED
        | dict(sliding_window=8, layer_types=LAYER_TYPES, rope_theta=500_000.0)
        | dict(rope_scaling=dict(rope_type="yarn") | YARN | dict(rope_theta=500_000.0)),
    ),
    "deepseek-v2": ("DeepseekV2ForCausalLM", DERIVED | LATENT | dict(rope_theta=5e3)),
    "deepseek-v3-yarn": (
        "DeepseekV3ForCausalLM",
        DERIVED
        | LATENT
        | dict(q_lora_rank=20, rope_interleave=True, tie_word_embeddings=True)
        | dict(rope_parameters=YARN | dict(rope_type="yarn", mscale=1.0, mscale_all_dim=0.7)),
    ),
    "deepseek-v3-halves": (
        "DeepseekV3ForCausalLM",
        DERIVED | LATENT | dict(rope_interleave=False, rope_theta=5e3),
    ),
    "gpt-oss": ("GptOssForCausalLM", GPT_OSS | dict(swiglu_limit=0.3, swiglu_alpha=1.3)),
    "gpt-oss-mxfp4": ("GptOssForCausalLM", GPT_OSS | dict(swiglu_limit=0.3)),
    "ministral3": ("Ministral3ForCausalLM", MINISTRAL3 | dict(sliding_window=20)),
    "ministral3-with-vision": (
        "Mistral3ForConditionalGeneration",
        dict(text_config=MINISTRAL3 | dict(model_type="ministral3", tie_word_embeddings=True))
        | dict(vision_config=VISION | dict(model_type="pixtral")),
    ),
    "qwen2-windowed": (
        "Qwen2ForCausalLM",
        DERIVED | dict(use_sliding_window=True, sliding_window=8, max_window_layers=1),
    ),
}


def save(directory, name, **save_options):
    """Make a model of this name with weights large enough to matter, save it, return it."""
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = random_model(*MODELS[name], seed=sum(name.encode()))
    if "mxfp4" in name:
        save_mxfp4(directory, model)
    else:
        model.save_pretrained(directory, **save_options)
    return model


def save_mxfp4(directory, model):
    """Give the experts random weights that MXFP4 can hold, and save the model as gpt-oss is saved."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    packed = {}
    for name, tensor in model.state_dict().items():
        packed[name] = tensor
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inner, out = tensor.shape
            blocks = torch.randint(256, (experts, out, inner // 32, 16), dtype=torch.uint8)
            scales = torch.randint(122, 126, blocks.shape[:-1], dtype=torch.uint8)
            tensor.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
            del packed[name]
            packed |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    model.config.quantization_config = {"quant_method": "mxfp4"}
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(directory)
    save_file(packed, directory / "model.safetensors", metadata={"format": "pt"})


def random_model(kind, entries, seed=7, matrices=0.15):
    """Make a model of this class with random weights; `entries` are those of its configuration."""
    kind = getattr(transformers, kind)
    torch.manual_seed(seed)
    model = kind(kind.config_class(**deepcopy(entries))).eval()  # it changes what it is given
    return spread_out(model, matrices)


def spread_out(model, matrices=0.15):
    """Norms start as ones and hide a norm that is left out; peaked logits make ties rare."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else matrices))
        if "Gemma4" in type(model).__name__:  # in the others, queries are divided by sqrt(head_dim)
            for name, tensor in model.state_dict().items():
                ending = name.rpartition("self_attn.")[2].rpartition(".layer_")[2]
                tensor.mul_({"q_norm.weight": 0.25, "scalar": 1.5}.get(ending, 1.0))
    return model


def add_tokenizer(directory, size=97):
    """A byte-level tokenizer with the first `size` bytes as its vocabulary."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:size]
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))
