"""A mixture of experts computes what its reference and transformers compute, and counts its loads."""

import copy

import pytest
import torch

from engine.models.config_file import read_config
from engine.models.moe import MixtureOfExperts
from engine.models.weights.checkpoint import Checkpoint
from engine.models.weights.matrix import Int8Matrix

EXPERTS, PER_TOKEN, HIDDEN = 8, 2, 48
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
MODELS = {True: "qwen3-moe", False: "qwen3-moe, dense layer"}  # by norm_topk_prob


class Int8Checkpoint(Checkpoint):
    """Matrices in int8, as of a quantized file."""

    def load_matrix(self, rows, columns):
        return Int8Matrix.quantize(super().load_matrix(rows, columns), self.dtype)


@pytest.fixture
def a_mixture(a_model):
    """One of ours and one of transformers, with the same weights."""

    def make(*, norm_topk_prob=True, dtype=torch.float32, kind=Checkpoint):
        directory, model = a_model(MODELS[norm_topk_prob])
        config = read_config(directory)
        assert config.norm_topk_prob == norm_topk_prob
        mixture = MixtureOfExperts(config, kind(directory, dtype), "model.layers.0.mlp")
        return mixture, copy.deepcopy(model.model.layers[0].mlp).to(dtype)

    return make


def drawn(tokens, dtype=torch.float32):
    return torch.randn(tokens, HIDDEN, generator=torch.manual_seed(5)).to(dtype)


@torch.inference_mode()
@pytest.mark.parametrize("norm_topk_prob", [True, False])
@pytest.mark.parametrize("tokens", [1, 2, 5, 33])
def test_it_equals_its_reference_and_transformers(a_mixture, tokens, norm_topk_prob):
    mixture, theirs = a_mixture(norm_topk_prob=norm_topk_prob)
    x = drawn(tokens)
    before = x.clone()
    y = mixture(x)
    torch.testing.assert_close(y, theirs(x[None])[0], **CLOSE)
    assert torch.equal(x, before)


@torch.inference_mode()
def test_experts_in_int8_are_chosen_as_in_float32(a_mixture):
    """The router is never quantized, so only the experts' own results differ."""
    mixture, theirs = a_mixture(kind=Int8Checkpoint)
    x = drawn(17)
    y, expected = mixture(x), theirs(x[None])[0]
    token_by_token = torch.cat([mixture(one[None]) for one in x])
    torch.testing.assert_close(y, token_by_token, **CLOSE)
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
