"""The vectorised sampler against a plain one that treats a row at a time."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.compute.randomness import uniforms
from engine.compute.sampler import Draws, choose, distribution, draw
from engine.scheduling.sampling_params import SamplingParams


def reference_distribution(logits, temperature, top_k, top_p):
    """One row, as one would write it down: temperature, top-k, top-p, with plain floats."""
    scaled = [x / temperature for x in logits]
    order = sorted(range(len(scaled)), key=lambda i: -scaled[i])
    if top_k:
        last = scaled[order[min(top_k, len(order)) - 1]]
        order = [i for i in order if scaled[i] >= last]
    weights = {i: math.exp(scaled[i] - scaled[order[0]]) for i in order}
    total = sum(weights.values())
    if top_p < 1:
        kept, mass = [], 0.0
        for i in order:
            if mass >= top_p and scaled[i] < scaled[kept[-1]]:
                break
            kept.append(i)
            mass += weights[i] / total
        weights = {i: weights[i] for i in kept}
        total = sum(weights.values())
    return [weights.get(i, 0.0) / total for i in range(len(logits))]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**32 - 1),  # logits
        st.sampled_from([0.05, 0.5, 1.0, 3.0]),
        st.sampled_from([0, 1, 2, 7, 64, 65, 300]),
        st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.01]),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, vocab=st.sampled_from([1, 5, 200]), spread=st.sampled_from([0.01, 2.0]))
def test_distribution_equals_the_plain_one(rows, vocab, spread):
    logits = torch.stack(
        [torch.randn(vocab, generator=torch.manual_seed(seed)) * spread for seed, *_ in rows]
    )
    _, temperature, top_k, top_p = zip(*rows, strict=True)
    top_k = [min(k, vocab) for k in top_k]
    found = distribution(
        logits,
        torch.tensor(temperature),
        torch.tensor(top_k),
        torch.tensor(top_p, dtype=torch.float64),
    )
    for i, row in enumerate(logits.tolist()):
        expected = reference_distribution(row, temperature[i], top_k[i], top_p[i])
        assert found[i].sum().item() == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose(found[i].numpy(), expected, atol=2e-5)


def single(logits, temperature=1.0, top_k=0, top_p=1.0):
    return distribution(
        torch.tensor([logits]),
        torch.tensor([temperature]),
        torch.tensor([top_k]),
        torch.tensor([top_p], dtype=torch.float64),
    )[0].tolist()


def test_the_lesson_s_numbers():
    logits = [2.0, 1.0, 0.0, -1.0]
    assert single(logits) == pytest.approx([0.644, 0.237, 0.087, 0.032], abs=5e-4)
    assert single(logits, temperature=0.5) == pytest.approx([0.865, 0.117, 0.016, 0.002], abs=5e-4)
    # The smallest set that *reaches* 0.9 has three members: two have 0.881.
    assert [p > 0 for p in single(logits, top_p=0.9)] == [True, True, True, False]
    # Top-k comes first: of the three left, two reach 0.9.
    assert [p > 0 for p in single(logits, top_k=3, top_p=0.9)] == [True, True, False, False]


def test_ties_at_a_cut_are_all_kept():
    assert single([1.0, 1.0, 1.0, 0.0], top_k=2) == pytest.approx([1 / 3] * 3 + [0])
    assert single([1.0, 1.0, 1.0, 0.0], top_p=0.4) == pytest.approx([1 / 3] * 3 + [0])


@pytest.mark.parametrize("temperature", [1e-5, 1e-300])
def test_a_tiny_temperature_is_greedy_and_finite(temperature):
    assert single([3.0, 7.0, 6.9], temperature=temperature) == [0, 1, 0]


def test_a_huge_temperature_is_uniform():
    assert single([3.0, 7.0, 6.9], temperature=1e30) == pytest.approx([1 / 3] * 3)


def test_draw_is_exact_at_its_thresholds():
    probabilities = torch.tensor([[0.25, 0.0, 0.5, 0.25, 0.0]]).double()
    eps = 2.0**-53
    for number, token in [
        (0.0, 0), (0.25 - eps, 0), (0.25, 2), (0.75 - eps, 2), (0.75, 3), (1 - eps, 3),
    ]:  # fmt: skip
        assert draw(probabilities, torch.tensor([number], dtype=torch.float64)).tolist() == [token]


def all_draws(params, seeds, samples=None, positions=None):
    draws = Draws()
    for i, seed in enumerate(seeds):
        draws.add(params, seed, samples[i] if samples else 0, positions[i] if positions else 9)
    return draws


def test_greedy_takes_the_likeliest_and_reports_its_probability():
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0]])
    ids, logprobs = choose(logits, all_draws(SamplingParams(), [1, 2]))
    assert ids == [1, 0]
    assert logprobs == pytest.approx(logits.log_softmax(-1)[[0, 1], [1, 0]].tolist())


def test_logprobs_are_the_model_s_own_before_temperature_and_cuts():
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    params = SamplingParams(temperature=5.0, top_k=2, top_p=0.9)
    for seed in range(20):
        (token,), (logprob,) = choose(logits, all_draws(params, [seed]))
        assert logprob == pytest.approx(logits.log_softmax(-1)[0, token].item())


def test_greedy_and_sampled_rows_share_a_batch():
    logits = torch.randn(6, 50, generator=torch.manual_seed(1))
    greedy, warm = SamplingParams(), SamplingParams(temperature=2.0)
    draws = Draws()
    for i in range(6):
        draws.add(warm if i % 2 else greedy, seed=i, sample=0, position=3)
    ids, _ = choose(logits, draws)
    for i in range(6):
        alone = choose(logits[i : i + 1], all_draws(warm if i % 2 else greedy, [i], None, [3]))
        assert alone[0] == [ids[i]]


def test_drawn_frequencies_are_the_probabilities():
    logits = torch.tensor([1.0, 0.0, -1.0, 0.5, -2.0])
    params = SamplingParams(temperature=0.7, top_k=4, top_p=0.95)
    count = 40_000
    ids, _ = choose(
        logits.expand(count, -1), all_draws(params, [3] * count, None, list(range(count)))
    )
    expected = reference_distribution(logits.tolist(), 0.7, 4, 0.95)
    found = Counter(ids)
    for token, probability in enumerate(expected):
        deviation = math.sqrt(probability * (1 - probability) / count)
        assert abs(found[token] / count - probability) <= 4 * deviation


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error(bad, temperature):
    params = SamplingParams(temperature=temperature, top_p=0.9)
    with pytest.raises(FloatingPointError, match="not finite"):
        choose(torch.tensor([[0.0, 1.0], [0.0, bad]]), all_draws(params, [1, 2]))


def test_a_top_k_beyond_any_vocabulary_keeps_all():
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    huge = SamplingParams(temperature=1.0, top_k=10**30)
    for seed in range(20):
        assert choose(logits, all_draws(huge, [seed])) == choose(
            logits, all_draws(SamplingParams(temperature=1.0), [seed])
        )


class TestUniforms:
    def test_each_depends_on_its_own_entry_alone(self):
        many = uniforms([5, 6, 7], [0, 1, 2], [10, 11, 12])
        assert many[1] == uniforms([6], [1], [11])[0]

    def test_seed_sample_and_position_all_matter(self):
        grid = [(s, n, p) for s in range(-3, 20) for n in range(6) for p in range(50)]
        numbers = uniforms(*map(list, zip(*grid, strict=True)))
        assert len(set(numbers.tolist())) == len(grid)

    def test_large_and_negative_seeds_are_fine(self):
        numbers = uniforms([2**63, -1, 2**64 + 1, 1], [0] * 4, [0] * 4)
        assert ((numbers >= 0) & (numbers < 1)).all()

    @pytest.mark.parametrize("axis", range(3))
    def test_uniform_and_uncorrelated_along_every_axis(self, axis):
        count = 20_000
        entry = [[7] * count, [0] * count, [100] * count]
        entry[axis] = list(range(count))
        numbers = uniforms(*entry)
        histogram = np.histogram(numbers, bins=20, range=(0, 1))[0]
        chi_square = ((histogram - count / 20) ** 2 / (count / 20)).sum()
        assert chi_square < 43.8  # 19 degrees of freedom: one in a thousand lies above
        for lag in (1, 2, 3):
            assert abs(np.corrcoef(numbers[lag:], numbers[:-lag])[0, 1]) < 4 / math.sqrt(count)
