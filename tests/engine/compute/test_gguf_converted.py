"""Files by llama.cpp's converter compute what transformers computes before the conversion."""

import gguf
import numpy as np
import pytest
import torch

from engine.compute.loader import load
from engine.compute.model.config import LlamaConfig
from engine.compute.weights.checkpoint import CheckpointError
from engine.compute.weights.gguf_architectures import ARCHITECTURES, config_entries
from engine.compute.weights.gguf_checkpoint import GGUFCheckpoint
from tests.engine.compute.gguf_converted import LOGITS, MODELS, NUM_LOGITS, file_of
from tests.engine.compute.gguf_fixtures import our_logits
from tests.facts import raises_naming


@pytest.fixture(scope="module")
def recorded():
    return {name: torch.from_numpy(logits) for name, logits in np.load(LOGITS).items()}


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers_and_of_llama_cpp(name, recorded):
    logits = our_logits(file_of(name))
    assert logits.shape == (NUM_LOGITS, 401)
    torch.testing.assert_close(logits, recorded[name], atol=5e-5, rtol=1e-4)
    # llama.cpp multiplies float16 matrices with activations that it rounds to float16.
    torch.testing.assert_close(logits, recorded[f"{name}, llama.cpp"], atol=0.02, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_a_converted_file_loads_with_its_tokenizer(name):
    runner, tokenizer = load(file_of(name))
    assert runner.describe()["architecture"] == ARCHITECTURES[name].name
    assert tokenizer.decode(tokenizer.encode("Once upon a time")).endswith("Once upon a time")


def entries_of(name, **changed):
    """The entries of config.json with other metadata; None removes an entry."""
    fields = dict(GGUFCheckpoint(file_of(name)).file.fields) | {
        f"{name}.{key}": value for key, value in changed.items()
    }
    fields = {key: value for key, value in fields.items() if value is not None}
    return config_entries(fields, GGUFCheckpoint(file_of(name)).file.tensors, {})


def test_what_the_file_of_a_gemma_3_leaves_out():
    """llama.cpp knows the layers with a window and the largest model's query scale."""
    config = GGUFCheckpoint(file_of("gemma3")).config
    assert isinstance(config, LlamaConfig)
    assert config.windows == (8,) * 5 + (None,)
    assert len(set(config.ropes[:5])) == 1
    assert config.ropes[0] != config.ropes[5]
    assert entries_of("gemma3")["query_pre_attn_scalar"] == 16
    largest = {"block_count": 62, "embedding_length": 5376, "attention.head_count": 32}
    assert entries_of("gemma3", **largest)["query_pre_attn_scalar"] == 168
    without = entries_of("gemma3", **{"attention.sliding_window": None})
    assert (without["sliding_window"], without["sliding_window_pattern"]) == (None, 1)
    listed = entries_of("gemma3", **{"attention.sliding_window_pattern": [False, True]})
    assert listed["layer_types"] == ["full_attention", "sliding_attention"]


def test_a_phi_3_without_factors_rotates_whole_heads():
    changed = {"rope.dimension_count": None, "rope.scaling.attn_factor": None}
    entries = entries_of("phi3", **changed)
    assert (entries["partial_rotary_factor"], entries["rope_scaling"]) == (1.0, None)


def test_an_olmo_3_is_not_taken_for_an_olmo_2():
    with raises_naming(CheckpointError, "olmo2.attention.sliding_window", 4096):
        entries_of("olmo2", **{"attention.sliding_window": 4096})


def test_factors_beside_another_scaling_are_rejected():
    reader = GGUFCheckpoint(file_of("phi3")).file
    fields = reader.fields | {"phi3.rope.scaling.type": "yarn"}
    with raises_naming(CheckpointError, "phi3.rope.scaling.type", "yarn", "rope_factors_long"):
        config_entries(fields, reader.tensors, {"short_factor": [1.0], "long_factor": [2.0]})


def test_every_architecture_of_gguf_has_a_file_or_is_written_by_the_tests():
    assert set(ARCHITECTURES) == {*MODELS, "llama", "qwen2", "qwen3"}
    assert set(gguf.MODEL_ARCH_NAMES.values()) >= set(ARCHITECTURES)
