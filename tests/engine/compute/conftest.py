"""Small random models with every switch of their family on, saved by transformers."""

import pytest
import torch
import transformers

transformers.logging.set_verbosity_error()

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
)
MODELS = {
    "qwen3": (
        transformers.Qwen3ForCausalLM,
        transformers.Qwen3Config(**SIZES, rope_theta=5e3, tie_word_embeddings=True),
    ),
    "qwen3-untied": (
        transformers.Qwen3ForCausalLM,
        transformers.Qwen3Config(**SIZES, rope_theta=1e6, tie_word_embeddings=False),
    ),
    "llama": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(**SIZES, rms_norm_eps=1e-5, tie_word_embeddings=False),
    ),
    "llama-mha-tied": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(
            **SIZES | {"num_key_value_heads": 6, "head_dim": None}, tie_word_embeddings=True
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


@pytest.fixture(scope="session", params=MODELS)
def any_model(request, tmp_path_factory):
    """(directory, transformers model), for each of MODELS."""
    directory = tmp_path_factory.mktemp(request.param)
    return directory, save(directory, request.param)


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory):
    """(directory, transformers model)"""
    directory = tmp_path_factory.mktemp("qwen3")
    return directory, save(directory, "qwen3")


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
