"""KV bytes from configurations: equal to what the engine allocates, and to published sizes."""

import pytest
import torch

from engine.core.compute.model import kv_bytes, kv_bytes_per_token
from engine.models.config_file import parse_config
from engine.models.configurations import CONFIGURATIONS
from engine.models.kv_sizes import KVSizeError, kv_sizes
from tests.facts import raises_naming
from tests.lazy import transformers

# Billions of parameters, as the models' publishers state them.
PUBLISHED = {
    "GPT-2": 0.124, "Falcon 7B": 6.92, "Mistral 7B v0.1": 7.24, "Llama 3.1 8B": 8.03,
    "Llama 3.1 70B": 70.6, "Qwen3 8B": 8.2, "Qwen3 32B": 32.8, "Qwen3 30B-A3B": 30.5,
    "Gemma 3 27B": 27.0, "gpt-oss-20b": 20.9, "gpt-oss-120b": 116.8, "DeepSeek-V3": 671,
}  # fmt: skip
LOADED = [
    name
    for name, (entries, _) in CONFIGURATIONS.items()
    if "Falcon" not in name and "Deep" not in name
]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_parameters_counted_from_a_configuration_are_the_published_number(name: str) -> None:
    counted = kv_sizes(CONFIGURATIONS[name].entries).parameters / 1e9
    assert counted == pytest.approx(PUBLISHED[name], rel=0.005)


@pytest.mark.parametrize("name", LOADED)
def test_a_model_that_the_engine_loads_allocates_these_bytes(name: str) -> None:
    entries, sizes = CONFIGURATIONS[name].entries, kv_sizes(CONFIGURATIONS[name].entries)
    loaded = parse_config({"rope_theta": 1e6, "activation_function": "gelu_new"} | entries)
    assert sizes.per_token() == kv_bytes_per_token(loaded, torch.bfloat16)
    assert sizes.max_context == loaded.max_context or "gpt-oss" in name
    for length in (1, 100, 1000, 8192, 131_072):
        in_windows = kv_bytes(loaded, torch.bfloat16, 0, 1, min(length, loaded.window or 0))
        everywhere = kv_bytes(loaded, torch.bfloat16, length, 1, 0)
        assert sizes.per_sequence(length) == in_windows + everywhere


@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        ("GPT-2", "GPT2Config"),
        ("Falcon 7B", "FalconConfig"),
        ("Mistral 7B v0.1", "MistralConfig"),
        ("gpt-oss-120b", "GptOssConfig"),
        ("DeepSeek-V3", "DeepseekV3Config"),
    ],
)
def test_configurations_said_to_be_transformers_defaults_are(name: str, defaults: str) -> None:
    entries = CONFIGURATIONS[name].entries
    assert "transformers" in CONFIGURATIONS[name].source
    others = {"architectures", "quantization_config"}
    # transformers' default is the length before scaling; the file on the Hub has the one after it.
    others |= {"max_position_embeddings"} if name == "DeepSeek-V3" else set()
    theirs = getattr(transformers, defaults)()
    for entry in entries.keys() - others:
        assert getattr(theirs, entry) == entries[entry], entry


def test_windows_stop_growing_and_int8_adds_a_scale_per_token_and_head() -> None:
    gemma = kv_sizes(CONFIGURATIONS["Gemma 3 27B"].entries)
    per_layer = 2 * 16 * 128 * 2
    assert gemma.per_token() == 62 * per_layer
    assert gemma.per_sequence(1025) - gemma.per_sequence(1024) == 10 * per_layer
    assert gemma.per_token("int8") == 62 * 2 * 16 * (128 + 4)
    assert gemma.per_token("fp8") * 2 == gemma.per_token()
    latent = kv_sizes(CONFIGURATIONS["DeepSeek-V3"].entries)
    assert (latent.kind, latent.per_token()) == ("MLA", 61 * (512 + 64) * 2)


def test_users_that_fit_use_less_than_the_device_and_one_more_would_not_fit() -> None:
    for entries, _ in CONFIGURATIONS.values():
        fit = kv_sizes(entries).fit(80e9, 4096, kv_dtype="int8")
        assert fit.weights + fit.users * fit.user_bytes <= fit.device_bytes
        assert fit.weights + (fit.users + 1) * fit.user_bytes > fit.device_bytes
    too_large = kv_sizes(CONFIGURATIONS["Llama 3.1 70B"].entries).fit(80e9, 8192, devices=1)
    assert too_large.users == 0


def test_configurations_that_cannot_be_counted_are_rejected_by_entry() -> None:
    llama = CONFIGURATIONS["Llama 3.1 8B"].entries
    with raises_naming(KVSizeError, "layer_types", "linear_attention"):
        kv_sizes(llama | {"layer_types": ["linear_attention", "full_attention"] * 16})
    with raises_naming(KVSizeError, "num_attention_heads", "0"):
        kv_sizes(llama | {"num_attention_heads": 0})
    with raises_naming(KVSizeError, "quant_method", "awq"):
        kv_sizes(llama | {"quantization_config": {"quant_method": "awq"}})
    with raises_naming(KVSizeError, "num_kv_shared_layers"):
        kv_sizes(llama | {"num_kv_shared_layers": 4})
    with raises_naming(KVSizeError, "kv_dtype", "int3"):
        kv_sizes(llama).per_token("int3")
