"""The configurations of twelve models that people run: what decides the memory that they need.

Each has its source, because the files themselves are on the Hub and were not fetched for this table.
What torchtune and torchtitan build is loaded with the published weights there.
`transformers` stands for the defaults of its configuration class, which a test compares. The entries
of a model that is not named here come from its own config.json: `kv_sizes(entries)` reads any of them.
"""

from typing import Any, NamedTuple


class Configuration(NamedTuple):
    """The entries of a config.json, and where they were read."""

    entries: dict[str, Any]
    source: str


def _llama(hidden: int, inner: int, layers: int, heads: int, **entries: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "vocab_size": 128_256,
    } | entries


def _qwen3(hidden: int, inner: int, layers: int, heads: int, **entries: Any) -> dict[str, Any]:
    qwen3 = {
        "architectures": ["Qwen3ForCausalLM"],
        "head_dim": 128,
        "max_position_embeddings": 40_960,
        "vocab_size": 151_936,
    }
    return _llama(hidden, inner, layers, heads) | qwen3 | entries


def _gpt_oss(layers: int, experts: int) -> dict[str, Any]:
    return _llama(2880, 2880, layers, 64) | {
        "architectures": ["GptOssForCausalLM"],
        "head_dim": 64,
        "sliding_window": 128,
        "num_local_experts": experts,
        "quantization_config": {"quant_method": "mxfp4"},
        "vocab_size": 201_088,
    }


CONFIGURATIONS = {
    "GPT-2": Configuration(
        {
            "architectures": ["GPT2LMHeadModel"],
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "vocab_size": 50_257,
        },
        "transformers, GPT2Config",
    ),
    "Falcon 7B": Configuration(
        {
            "architectures": ["FalconForCausalLM"],
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "multi_query": True,
            "max_position_embeddings": 2048,
            "vocab_size": 65_024,
            "tie_word_embeddings": True,
        },
        "transformers, FalconConfig",
    ),
    "Mistral 7B v0.1": Configuration(
        _llama(4096, 14_336, 32, 32, vocab_size=32_000)
        | {"architectures": ["MistralForCausalLM"], "sliding_window": 4096},
        "transformers, MistralConfig",
    ),
    "Llama 3.1 8B": Configuration(
        _llama(4096, 14_336, 32, 32),
        "github.com/pytorch/torchtune, models/llama3_1/_model_builders.py",
    ),
    "Llama 3.1 70B": Configuration(
        _llama(8192, 28_672, 80, 64),
        "github.com/pytorch/torchtune, models/llama3_1/_model_builders.py",
    ),
    "Qwen3 8B": Configuration(
        _qwen3(4096, 12_288, 36, 32),
        "github.com/pytorch/torchtune, models/qwen3/_model_builders.py",
    ),
    "Qwen3 32B": Configuration(
        _qwen3(5120, 25_600, 64, 64),
        "github.com/pytorch/torchtune, models/qwen3/_model_builders.py",
    ),
    "Qwen3 30B-A3B": Configuration(
        _qwen3(2048, 6144, 48, 32, num_key_value_heads=4)
        | {
            "architectures": ["Qwen3MoeForCausalLM"],
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
        "github.com/pytorch/torchtitan, models/qwen3/flavors.py",
    ),
    "Gemma 3 27B": Configuration(
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "text_config": {
                "hidden_size": 5376,
                "intermediate_size": 21_504,
                "num_hidden_layers": 62,
                "num_attention_heads": 32,
                "num_key_value_heads": 16,
                "head_dim": 128,
                "sliding_window": 1024,
                "vocab_size": 262_144,
            },
        },
        "github.com/huggingface/transformers, models/gemma3/convert_gemma3_weights.py",
    ),
    "gpt-oss-20b": Configuration(
        _gpt_oss(24, 32), "github.com/pytorch/torchtitan, models/gpt_oss/flavors.py"
    ),
    "gpt-oss-120b": Configuration(_gpt_oss(36, 128), "transformers, GptOssConfig"),
    "DeepSeek-V3": Configuration(
        {
            "architectures": ["DeepseekV3ForCausalLM"],
            "hidden_size": 7168,
            "intermediate_size": 18_432,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 61,
            "num_attention_heads": 128,
            "n_shared_experts": 1,
            "n_routed_experts": 256,
            "first_k_dense_replace": 3,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "vocab_size": 129_280,
            "max_position_embeddings": 163_840,
            "quantization_config": {"quant_method": "fp8"},
        },
        "transformers, DeepseekV3Config",
    ),
}
