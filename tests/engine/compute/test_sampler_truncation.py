"""Temperature, min-p, top-k and top-p: all rows at once against one at a time, and transformers."""

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engine.compute.sampling.reference import probabilities
from engine.compute.sampling.truncation import truncated_probs
from engine.scheduling.sampling_params import SamplingParams
from tests.engine.compute.sampler_cases import random_logits
from tests.lazy import transformers


def all_rows(logits, params):
    return truncated_probs(
        logits,
        torch.tensor([p.temperature for p in params]),
        torch.tensor([p.min_p for p in params]),
        torch.tensor([min(p.top_k, logits.shape[-1]) for p in params]),
        torch.tensor([p.top_p for p in params], dtype=torch.float64),
    )


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.05, 0.5, 1.0, 3.0]),
    min_p=st.sampled_from([0.0, 0.0, 1e-6, 0.02, 0.3, 1.0]),
    top_k=st.sampled_from([0, 1, 2, 7, 64, 65, 300]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.01, 1e-12]),
)


@settings(max_examples=80, deadline=None)
@given(
    params=st.lists(PARAMS, min_size=1, max_size=6),
    seed=st.integers(0, 10**6),
    vocab=st.sampled_from([1, 5, 200, 700]),
    spread=st.sampled_from([0.01, 2.0]),
    ties=st.booleans(),
)
# Almost flat: top-p needs more than its first look.
@example([SamplingParams(temperature=3.0, top_p=0.9)] * 2, 1, 700, 0.01, False)
def test_distribution_equals_the_plain_one(params, seed, vocab, spread, ties):
    logits = random_logits(seed, len(params), vocab, spread, ties)
    before = logits.clone()
    found = all_rows(logits, params)
    assert torch.equal(logits, before)
    for i, row in enumerate(logits.tolist()):
        np.testing.assert_allclose(found[i].numpy(), probabilities(row, params[i]), atol=2e-5)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.2, 1.0, 1.7]),
    min_p=st.sampled_from([0.01, 0.1, 0.5]),
    top_k=st.sampled_from([1, 3, 20, 1000]),
    top_p=st.sampled_from([0.1, 0.6, 0.95]),
)
def test_the_cuts_equal_those_of_transformers(seed, temperature, min_p, top_k, top_p):
    logits = random_logits(seed, 4, 120)
    warpers = dict(
        min_p=transformers.MinPLogitsWarper(min_p),
        top_k=transformers.TopKLogitsWarper(top_k),
        top_p=transformers.TopPLogitsWarper(top_p),
    )
    chosen = dict(min_p=min_p, top_k=top_k, top_p=top_p)
    for names in (["min_p"], ["top_k"], ["top_p"], ["min_p", "top_k", "top_p"]):
        scores = transformers.TemperatureLogitsWarper(temperature)(None, logits)
        for name in names:
            if name == "top_p":  # a sum that rounding moves across the limit decides nothing
                sums = scores.double().softmax(-1).sort(descending=True).values.cumsum(-1)
                assume((sums - top_p).abs().min() > 1e-6)
            scores = warpers[name](None, scores)
        params = SamplingParams(temperature=temperature, **{name: chosen[name] for name in names})
        torch.testing.assert_close(all_rows(logits, [params] * 4), scores.softmax(-1))


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [(1e-5, [0, 1, 0]), (1e-300, [0, 1, 0]), (1e30, [1 / 3] * 3), (1e300, [1 / 3] * 3)],
)
@pytest.mark.parametrize("min_p", [0.0, 0.99])
def test_extreme_temperatures_are_greedy_or_uniform(temperature, expected, min_p):
    params = SamplingParams(temperature=temperature, min_p=min_p)
    assert all_rows(torch.tensor([[3.0, 7.0, 6.9]]), [params])[0].tolist() == pytest.approx(
        expected
    )
