"""Defaults, older forms and per-layer lists of config.json mean what they mean to transformers."""

import pytest

from engine.models.config_file import parse_config
from engine.models.weights.checkpoint import CheckpointError
from tests.engine.compute.models import DERIVED, EXPERTS, FEW_HEADS, GEMMA4_EXPERTS, phi4
from tests.facts import raises_naming
from tests.lazy import transformers

CONFIGS = {
    "LlamaForCausalLM": "LlamaConfig",
    "MistralForCausalLM": "MistralConfig",
    "Qwen2ForCausalLM": "Qwen2Config",
    "Qwen3ForCausalLM": "Qwen3Config",
    "Qwen3MoeForCausalLM": "Qwen3MoeConfig",
    "Phi3ForCausalLM": "Phi3Config",
    "SmolLM3ForCausalLM": "SmolLM3Config",
    "Olmo2ForCausalLM": "Olmo2Config",
    "Olmo3ForCausalLM": "Olmo3Config",
    "GptOssForCausalLM": "GptOssConfig",
    "Ministral3ForCausalLM": "Ministral3Config",
    "Gemma3ForCausalLM": "Gemma3TextConfig",
    "Gemma4ForCausalLM": "Gemma4TextConfig",
}
ENTRIES = DERIVED | {"num_hidden_layers": 7}
PHI4 = phi4(64)
SU = PHI4["rope_scaling"] | {"type": "su", "original_max_position_embeddings": 64}


def completed(architecture, entries):
    """The entries as transformers reads and writes them: complete, in today's form."""
    # It changes the dictionaries that it is given.
    copied = {k: dict(v) if isinstance(v, dict) else v for k, v in entries.items()}
    kind = getattr(transformers, CONFIGS[architecture])
    return kind(**copied).to_dict() | {"architectures": [architecture]}


@pytest.mark.parametrize(
    ("architecture", "entries"),
    [
        *((name, EXPERTS if "Moe" in name or "Oss" in name else {}) for name in CONFIGS),
        ("MistralForCausalLM", {"sliding_window": None}),
        ("Qwen2ForCausalLM", {"use_sliding_window": True, "max_window_layers": 3}),
        ("Qwen3ForCausalLM", {"use_sliding_window": True, "max_window_layers": 3}),
        ("Qwen3MoeForCausalLM", EXPERTS | {"use_sliding_window": True, "sliding_window": 64}),
        (
            "Qwen3MoeForCausalLM",
            EXPERTS | {"decoder_sparse_step": 2, "mlp_only_layers": [3], "norm_topk_prob": True},
        ),
        ("Phi3ForCausalLM", PHI4),
        ("Phi3ForCausalLM", PHI4 | {"rope_scaling": SU}),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 1, 0, 1, 0, 1, 1]}),
        ("SmolLM3ForCausalLM", {"no_rope_layer_interval": 2}),
        ("SmolLM3ForCausalLM", {"use_sliding_window": True, "sliding_window": 64}),
        ("Gemma3ForCausalLM", {"sliding_window_pattern": 3, "rope_theta": 500.0}),
        (
            "Gemma3ForCausalLM",
            {"rope_local_base_freq": 50.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        ),
        ("Gemma4ForCausalLM", {"num_kv_shared_layers": 1, "use_double_wide_mlp": True}),
        ("Gemma4ForCausalLM", FEW_HEADS | GEMMA4_EXPERTS | {"num_hidden_layers": 12}),
        ("Qwen2ForCausalLM", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
        ("LlamaForCausalLM", {"rope_scaling": {"type": "linear", "factor": 2}}),
        ("Olmo2ForCausalLM", {"attention_bias": True, "rope_theta": 500.0}),
        ("Olmo3ForCausalLM", {"rope_scaling": {"rope_type": "yarn", "factor": 8.0}}),
    ],
)
def test_a_short_or_old_file_means_what_transformers_takes_it_for(architecture, entries):
    entries = ENTRIES | entries
    ours = parse_config(entries | {"architectures": [architecture]})
    assert ours == parse_config(completed(architecture, entries))


def test_the_text_part_of_a_model_with_vision():
    text = {"hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}
    entries = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    ours = parse_config(entries | {"vision_config": {"hidden_size": 1152}})
    complete = entries | {"text_config": completed("Gemma3ForCausalLM", text)}
    assert ours == parse_config(complete)
    assert (ours.vocab_size, ours.num_heads, ours.head_dim) == (262_208, 8, 256)
    assert ours.tied_embeddings
    assert not parse_config(entries | {"tie_word_embeddings": False}).tied_embeddings


@pytest.mark.parametrize(
    ("architecture", "entries", "facts"),
    [
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 0]}, ["no_rope_layers", 7, 2]),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 0.1}, ["partial_rotary_factor", 0.1, 8]),
        ("Phi3ForCausalLM", PHI4 | {"partial_rotary_factor": 1.0}, ["short_factor", 4, 2]),
        (
            "Qwen3MoeForCausalLM",
            EXPERTS | {"num_experts_per_tok": 9},
            ["num_experts_per_tok", 8, 9],
        ),
        (
            "Qwen3MoeForCausalLM",
            EXPERTS | {"moe_intermediate_size": 0},
            ["moe_intermediate_size", 1, 0],
        ),
        (
            "Ministral3ForCausalLM",
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
            ["llama_4_scaling_beta", "original_max_position_embeddings"],
        ),
        ("Gemma3ForCausalLM", {"final_logit_softcapping": 30.0}, ["final_logit_softcapping"]),
        ("Gemma4ForCausalLM", {"num_kv_shared_layers": 5}, ["num_kv_shared_layers", 5]),
        ("Gemma4ForCausalLM", {"num_global_key_value_heads": 4, "attention_k_eq_v": True}, [4, 6]),
        ("Gemma4ForCausalLM", {"per_layer_config": {"0": {"head_dim": 8}}}, ["per_layer_config"]),
        ("Gemma4ForCausalLM", {"use_bidirectional_attention": "all"}, ["all", "vision"]),
        ("Gemma4ForCausalLM", GEMMA4_EXPERTS | {"top_k_experts": 9}, ["top_k_experts", 8, 9]),
        # Their queries would be neither normalised nor rotated.
        ("Qwen3ForCausalLM", {"no_rope_layers": [1, 1, 0, 1, 1, 1, 1]}, ["no_rope_layers"]),
    ],
)
def test_what_is_not_supported_is_named(architecture, entries, facts):
    with raises_naming(CheckpointError, *facts):
        parse_config(ENTRIES | entries | {"architectures": [architecture]})
