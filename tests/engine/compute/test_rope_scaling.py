"""Each way of stretching rotary frequencies, its entries and its limits."""

from dataclasses import replace

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Engine, EngineConfig, RequestError, SamplingParams
from engine.models.rope_scaling import LinearScaling, Llama3Scaling, YarnScaling, read_scaling
from engine.models.weights.checkpoint import CheckpointError
from tests.engine.compute.driver import BLOCK_SIZE, Driver
from tests.engine.compute.judge import PROMPT, departs, last_logits, reference_logits
from tests.facts import raises_naming
from tests.lazy import transformers


def with_scaling(scaling):
    """Change a configuration so that all layers rotate with this scaling."""
    return lambda config: replace(
        config, ropes=tuple(replace(rope, scaling=scaling) for rope in config.ropes)
    )


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
            mscale=st.none() | st.floats(0.5, 2),
            mscale_all_dim=st.none() | st.floats(0.5, 2),
            truncate=st.booleans(),
        ),
    ),
    theta=st.sampled_from([100.0, 1e4, 1e6]),
)
def test_frequencies_are_those_of_transformers(scaling, theta):
    entries = msgspec.to_builtins(scaling) | {"rope_theta": theta}
    config = transformers.LlamaConfig(
        head_dim=16, max_position_embeddings=20_000, rope_parameters=entries
    )
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = entries["rope_type"]
    expected, scale = ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    frequencies = scaling.scaled(theta ** -(torch.arange(0, 16, 2) / 16), 20_000)
    torch.testing.assert_close(frequencies, expected, rtol=1e-5, atol=0)
    assert scaling.attention_scale == pytest.approx(scale)


def test_dynamic_scaling_is_none_up_to_the_length_the_model_was_made_for(a_model):
    """Beyond it the frequencies are others, and there the engine does not go."""
    directory, model = a_model("llama-dynamic")
    longer = [*PROMPT * 7][:272]
    for tokens, within in ((longer[:256], True), (longer, False)):
        logits = last_logits(
            directory, tokens, change=lambda config: replace(config, max_context=512)
        )
        unlike = (logits - reference_logits(model, tokens)[-1:]).abs().max()
        assert (unlike < 1e-4) if within else (unlike > 0.01)
    assert not departs(directory, model, with_scaling(None))
    engine = Engine(Driver(directory).runner, EngineConfig(max_kv_tokens=512))
    engine.submit(longer[:246], SamplingParams(max_tokens=10))
    with raises_naming(RequestError, 256):
        engine.submit(longer[:246], SamplingParams(max_tokens=11))


class TestLongRope:
    """The factors are chosen by the longest text that the engine can hold."""

    def test_each_choice_is_that_of_transformers_for_such_texts(self, a_model):
        directory, model = a_model("phi4-long")
        original = 16
        for tokens, num_blocks, within in (
            (PROMPT[:original], original // BLOCK_SIZE, True),
            (PROMPT[:original], 80, False),  # vLLM and llama.cpp differ from transformers here, too
            (PROMPT[: original + 1], 80, True),
        ):
            logits = last_logits(directory, tokens, num_blocks)
            apart = (logits - reference_logits(model, tokens)[-1:]).abs().max()
            assert (apart < 1e-4) if within else (apart > 0.01)

    def test_keys_of_the_two_choices_are_not_exchanged(self, a_model):
        """An engine takes KV pages only from one with the same fingerprint."""
        directory, _ = a_model("phi4-long")
        short, long, longer = (
            Driver(directory, num_blocks=blocks).runner.kv_format() for blocks in (4, 40, 80)
        )
        assert short != long == longer


@pytest.mark.parametrize(
    ("entries", "facts"),
    [
        ({"rope_type": "axial", "factor": 2.0}, ["axial", "llama3", "yarn", "longrope"]),
        ({"rope_type": "linear"}, ["factor"]),
        ({"rope_type": "linear", "factor": "x"}, ["factor", "float", "str"]),
        ({"rope_type": "linear", "factor": 0.5}, ["factor"]),
        ({"rope_type": "yarn", "factor": 2.0, "mscales": 0.7}, ["mscales"]),
        ({"rope_type": "longrope", "long_factor": [1.0]}, ["longrope", "short_factor"]),
        (
            {"type": "su", "short_factor": [1.0] * 8, "long_factor": [1.0] * 7},
            ["long_factor", 8, 7],
        ),
        (
            {"rope_type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4},
            ["high_freq_factor", "low_freq_factor"],
        ),
    ],
)
def test_what_is_not_supported_is_named(entries, facts):
    with raises_naming(CheckpointError, *facts):
        read_scaling(entries, 64, 16)
