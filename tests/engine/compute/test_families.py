"""What sets the families apart is really computed: without it the logits are others."""

import json
import shutil

import msgspec
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.compute.checkpoint import Checkpoint, CheckpointError
from engine.compute.families import Family
from engine.compute.model_config import SUPPORTED, read_config
from engine.compute.rope_scaling import LinearScaling, Llama3Scaling, YarnScaling, read_scaling
from tests.engine.compute.driver import BLOCK_SIZE, Driver
from tests.engine.compute.models import MODELS
from tests.engine.compute.test_parity import PROMPT, reference_logits


def departs(directory, model, **changes):
    """Whether a model with its configuration changed leaves transformers behind."""
    driver = Driver(directory, **changes)
    logits = driver.logits([driver.row(driver.request(PROMPT))])
    return (logits - reference_logits(model, PROMPT)[-1:]).abs().max() > 0.01


@pytest.mark.parametrize("name", ["qwen2-untied", "qwen3"])
def test_weights_of_a_feature_are_asked_for_and_matter(a_model, name, monkeypatch):
    """Bias and QK-norm: leaving them out is noticed at once, and would change what is said."""
    directory, model = a_model(name)
    assert not departs(directory, model)
    with pytest.raises(CheckpointError, match=r"does not use, model.layers.0.self_attn"):
        Driver(directory, family=Family())
    monkeypatch.setattr(Checkpoint, "check_all_taken", lambda self: None)
    assert departs(directory, model, family=Family())


@pytest.mark.parametrize("window", [None, 8, 10])
def test_the_window_is_exact(a_model, window):
    directory, model = a_model("mistral")
    assert not departs(directory, model, window=9)
    assert departs(directory, model, window=window)


@pytest.mark.parametrize("window", [1, 4, 9, 40, 41, 300])
@pytest.mark.parametrize("chunk", [1, 3, 8, 41])
def test_what_falls_out_of_the_window_is_not_read(a_model, window, chunk):
    """NaN in every slot before the window of the tokens to come changes no logit."""
    directory, model = a_model("mistral")
    model.config.sliding_window = window
    try:
        expected = reference_logits(model, PROMPT)[-1:]
    finally:
        model.config.sliding_window = 9
    driver = Driver(directory, window=window)
    request = driver.request(PROMPT)
    while request.uncomputed > chunk:
        driver.run([driver.row(request, chunk)])
        for position in range(request.computed - window + 1):
            driver.pages[:, request.table[position // BLOCK_SIZE], position % BLOCK_SIZE] = (
                torch.nan
            )
    logits = driver.logits([driver.row(request)])
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=1e-4)


def test_windows_of_a_batch_begin_where_each_row_s_own_does(a_model):
    directory, model = a_model("mistral")
    driver = Driver(directory)
    requests = [driver.request(PROMPT[:n]) for n in (2, 8, 9, 10, 30, 41)]
    for request in requests:
        if request.uncomputed > 1:
            driver.run([driver.row(request, request.uncomputed - 1)])
    logits = driver.logits([driver.row(request) for request in requests])
    for request, got in zip(requests, logits, strict=True):
        expected = reference_logits(model, request.tokens)[-1]
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


class TestRopeScaling:
    @pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
    def test_each_entry_matters(self, a_model, kind):
        directory, model = a_model(f"llama-{kind}")
        scaling = read_config(directory).rope_scaling
        assert not departs(directory, model, rope_scaling=scaling)
        assert departs(directory, model, rope_scaling=None)
        changes = {
            "factor": 2.0,
            "low_freq_factor": 2.0,
            "high_freq_factor": 2.0,
            "original_max_position_embeddings": 300,
            "beta_fast": 2.0,
            "beta_slow": 0.1,
            "attention_factor": 1.0,
            "truncate": False,
        }
        for entry in set(changes) & set(scaling.__struct_fields__):
            other = msgspec.structs.replace(scaling, **{entry: changes[entry]})
            assert departs(directory, model, rope_scaling=other), entry

    @settings(max_examples=150, deadline=None)
    @given(
        scaling=st.one_of(
            st.builds(LinearScaling, factor=st.floats(1, 40)),
            st.builds(
                Llama3Scaling,
                factor=st.floats(1, 40),
                low_freq_factor=st.floats(0.1, 2),
                high_freq_factor=st.floats(2.1, 40),
                original_max_position_embeddings=st.integers(8, 10_000),
            ),
            st.builds(
                YarnScaling,
                factor=st.floats(1, 40),
                original_max_position_embeddings=st.integers(8, 10_000),
                beta_fast=st.floats(1, 60),
                beta_slow=st.floats(0.1, 1),
                attention_factor=st.none() | st.floats(0.5, 2),
                truncate=st.booleans(),
            ),
        ),
        theta=st.sampled_from([100.0, 1e4, 1e6]),
    )
    def test_frequencies_are_those_of_transformers(self, scaling, theta):
        entries = msgspec.to_builtins(scaling) | {"rope_theta": theta}
        config = transformers.LlamaConfig(
            head_dim=16, max_position_embeddings=20_000, rope_parameters=entries
        )
        kind = entries["rope_type"]
        expected, scale = ROPE_INIT_FUNCTIONS[kind](config, "cpu")
        frequencies = scaling.scaled(theta ** -(torch.arange(0, 16, 2) / 16))
        torch.testing.assert_close(frequencies, expected, rtol=1e-5, atol=0)
        assert scaling.attention_scale == pytest.approx(scale)

    def test_dynamic_scaling_is_none_up_to_the_length_the_model_was_made_for(self, a_model):
        """And beyond it the engine does not go, see `test_a_loaded_runner_...` in test_loading."""
        directory, model = a_model("llama-dynamic")
        tokens = [*PROMPT * 7][:256]
        driver = Driver(directory, num_blocks=80)
        assert driver.runner.max_context == 256
        logits = driver.logits([driver.row(driver.request(tokens))])
        torch.testing.assert_close(
            logits, reference_logits(model, tokens)[-1:], atol=5e-5, rtol=1e-4
        )
        assert not departs(directory, model, rope_scaling=None)

    def test_yarn_reaches_as_far_as_its_factor_says(self):
        entries = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": None}
        scaling = read_scaling(entries, 32_768)
        assert scaling == YarnScaling(factor=4.0, original_max_position_embeddings=32_768)

    def test_older_names(self):
        assert read_scaling({"type": "linear", "factor": 2}, 64) == LinearScaling(factor=2.0)
        assert read_scaling({"rope_theta": 5.0, "partial_rotary_factor": 1.0}, 64) is None

    @pytest.mark.parametrize(
        ("entries", "message"),
        [
            (
                {"rope_type": "longrope", "factor": 2.0},
                "'longrope' is not supported.*llama3 and yarn",
            ),
            ({"rope_type": "linear"}, "missing required field `factor`"),
            (
                {"rope_type": "linear", "factor": "x"},
                r"Expected `float`, got `str` - at `\$\.factor`",
            ),
            ({"rope_type": "linear", "factor": 0.5}, "factor"),
            ({"rope_type": "yarn", "factor": 2.0, "mscale": 0.7}, "unknown field `mscale`"),
            ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is not supported"),
            (
                {"rope_type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4},
                "high_freq_factor must be above low_freq_factor",
            ),
        ],
    )
    def test_what_is_not_supported_is_named(self, entries, message):
        with pytest.raises(CheckpointError, match=message):
            read_scaling(entries, 64)


class TestGPT2:
    @pytest.fixture
    def copy(self, a_model, tmp_path):
        """GPT-2 as it was first published: no prefix, and the masks among the weights."""
        directory, model = a_model("gpt2")
        tensors = load_file(directory / "model.safetensors")
        tensors = {name.removeprefix("transformer."): t.clone() for name, t in tensors.items()}
        for layer in range(3):
            tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 256, 256).tril()
            tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
        save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
        shutil.copy(directory / "config.json", tmp_path)
        return tmp_path, model, tensors

    def test_the_first_files(self, copy):
        directory, model, _ = copy
        assert not departs(directory, model)

    @pytest.mark.parametrize(
        "name",
        ["wpe.weight", "ln_f.bias", "h.1.ln_2.bias", "h.0.attn.c_attn.bias", "h.2.mlp.c_fc.bias"],
    )
    def test_every_part_matters(self, copy, name):
        """Learned positions and biases: zeros in their place change what is said."""
        directory, model, tensors = copy
        tensors[name].zero_()
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
        assert departs(directory, model)

    @pytest.mark.parametrize(
        ("entries", "message"),
        [
            ({"activation_function": "relu"}, "activation_function = 'relu' is not supported"),
            ({"scale_attn_weights": False}, "scale_attn_weights"),
            ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
            ({"add_cross_attention": True}, "add_cross_attention"),
            ({"n_head": 5}, r"n_embd \(48\) must be a multiple of n_head \(5\)"),
            ({"n_head": 0}, "num_heads must be at least 1"),
        ],
    )
    def test_what_is_not_supported_is_named(self, copy, entries, message):
        file = copy[0] / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | entries))
        with pytest.raises(CheckpointError, match=message):
            read_config(copy[0])


def test_every_family_is_compared_with_transformers():
    assert {kind.__name__ for kind, _ in MODELS.values()} == SUPPORTED
