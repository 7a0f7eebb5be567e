"""A mixture of experts whose experts are in int8, and which of them it computes.

That it computes what transformers computes: `test_parity_table.py`.
"""

import pytest
import torch

from engine.models.config_file import read_config
from engine.models.moe import MixtureOfExperts
from engine.models.weights.checkpoint import Checkpoint
from engine.models.weights.matrix import Int8Matrix

PER_TOKEN, HIDDEN = 2, 48


class Int8Checkpoint(Checkpoint):
    """Matrices in int8, as of a quantized file."""

    def load_matrix(self, rows, columns):
        return Int8Matrix.quantize(super().load_matrix(rows, columns), self.dtype)


@pytest.fixture
def a_mixture(a_model):
    """One of ours and one of transformers, with the same weights."""

    def make(kind=Checkpoint):
        directory, model = a_model("qwen3-moe")
        mixture = MixtureOfExperts(read_config(directory), kind(directory), "model.layers.0.mlp")
        return mixture, model.model.layers[0].mlp

    return make


def drawn(tokens):
    return torch.randn(tokens, HIDDEN, generator=torch.manual_seed(5))


@torch.inference_mode()
def test_experts_in_int8_are_chosen_as_in_float32(a_mixture):
    """The router is never quantized, so only the experts' own results differ."""
    mixture, theirs = a_mixture(Int8Checkpoint)
    x = drawn(17)
    y, expected = mixture(x), theirs(x[None])[0]
    token_by_token = torch.cat([mixture(one[None]) for one in x])
    torch.testing.assert_close(y, token_by_token, atol=1e-5, rtol=1e-5)
    assert mixture.route(x)[0].tolist() == theirs.gate(x)[2].tolist()
    assert 0 < (y - expected).abs().max() < 0.03 * expected.abs().max()


@torch.inference_mode()
def test_only_experts_with_tokens_are_computed(a_mixture):
    mixture, _ = a_mixture()
    called = []

    def watched(number, expert):
        return lambda own: called.append((number, len(own))) or expert(own)

    mixture.experts = [watched(*one) for one in enumerate(mixture.experts)]
    mixture(drawn(1))
    assert len(called) == PER_TOKEN
    assert called == [(number, load) for number, load in enumerate(mixture.loads) if load]
