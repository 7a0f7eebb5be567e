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


def single(logits, **params):
    params = SamplingParams(**{"temperature": 1.0} | params)
    return all_rows(torch.tensor([logits]), [params])[0].tolist()


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


def test_the_lesson_s_numbers():
    logits = [2.0, 1.0, 0.0, -1.0]
    assert single(logits) == pytest.approx([0.644, 0.237, 0.087, 0.032], abs=5e-4)
    assert single(logits, temperature=0.5) == pytest.approx([0.865, 0.117, 0.016, 0.002], abs=5e-4)
    # The smallest set that *reaches* 0.9 has three members: two have 0.881.
    assert [p > 0 for p in single(logits, top_p=0.9)] == [True, True, True, False]
    # Top-k comes first: of the three left, two reach 0.9.
    assert [p > 0 for p in single(logits, top_k=3, top_p=0.9)] == [True, True, False, False]
    # The second is 0.37 times as likely as the first.
    assert [p > 0 for p in single(logits, min_p=0.3)] == [True, True, False, False]


def test_min_p_compares_after_the_temperature():
    logits = [2.0, 1.0, 0.0]
    assert [p > 0 for p in single(logits, min_p=0.3, temperature=0.5)] == [True, False, False]
    assert [p > 0 for p in single(logits, min_p=0.3, temperature=2.0)] == [True, True, True]
    assert single(logits, min_p=0.3, temperature=1e-30) == [1, 0, 0]
    assert single(logits, min_p=0.99, temperature=1e30) == pytest.approx([1 / 3] * 3)


def test_min_p_comes_before_top_p():
    # Without min-p the first two have 0.881 of all and the third is needed for 0.9.
    assert [p > 0 for p in single([2.0, 1.0, 0.0, -1.0], min_p=0.3, top_p=0.9)] == [
        True, True, False, False,
    ]  # fmt: skip
    # Of the two that min-p has left, the first alone reaches 0.7.
    assert [p > 0 for p in single([2.0, 1.0, 0.0, -1.0], min_p=0.3, top_p=0.7)] == [
        True, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize("cut", [dict(top_k=2), dict(top_p=0.4), dict(min_p=1.0)])
def test_ties_at_a_cut_are_all_kept(cut):
    assert single([1.0, 1.0, 1.0, 0.0], **cut) == pytest.approx([1 / 3] * 3 + [0])


@pytest.mark.parametrize("temperature", [1e-5, 1e-300])
def test_a_tiny_temperature_is_greedy_and_finite(temperature):
    assert single([3.0, 7.0, 6.9], temperature=temperature) == [0, 1, 0]


@pytest.mark.parametrize("temperature", [1e30, 1e300])
def test_a_huge_temperature_is_uniform(temperature):
    assert single([3.0, 7.0, 6.9], temperature=temperature) == pytest.approx([1 / 3] * 3)
