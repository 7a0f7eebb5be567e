"""The vectorised sampler: its order, its draws, and that rows of a batch do not touch each other."""

import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.compute.sampling import reference
from engine.compute.sampling.randomness import uniforms
from engine.compute.sampling.sampler import draw, sample
from engine.runner import LogitPosition
from tests.engine.compute.sampler_cases import logit_position, random_logits, random_position


def test_draw_is_exact_at_its_thresholds():
    probabilities = torch.tensor([[0.25, 0.0, 0.5, 0.25, 0.0]]).double()
    eps = 2.0**-53
    for number, token in [
        (0.0, 0), (0.25 - eps, 0), (0.25, 2), (0.75 - eps, 2), (0.75, 3), (1 - eps, 3),
    ]:  # fmt: skip
        assert draw(probabilities, torch.tensor([number], dtype=torch.float64)).tolist() == [token]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 8),
    vocab=st.sampled_from([1, 7, 64, 300]),
    ties=st.booleans(),
)
def test_a_row_gets_in_any_batch_what_it_gets_alone_bit_by_bit(seed, rows, vocab, ties):
    rng = random.Random(seed)
    positions = [random_position(rng, vocab) for _ in range(rows)]
    logits = random_logits(seed, rows, vocab, ties=ties)
    together = sample(logits.clone(), positions)
    for i in range(rows):
        alone = sample(logits[i : i + 1].clone(), positions[i : i + 1])
        assert alone.token_ids[0] == together.token_ids[i]
        assert alone.logprobs[0] == together.logprobs[i]
        assert alone.top_logprobs.get(0) == together.top_logprobs.get(i)


class Allows:
    """A constraint with the same mask everywhere."""

    def __init__(self, mask):
        self._mask = mask

    def mask(self, output):
        return self._mask


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), vocab=st.sampled_from([1, 6, 40]), is_masked=st.booleans())
def test_a_token_is_that_of_the_reference(seed, vocab, is_masked):
    rng = random.Random(seed)
    where = random_position(rng, vocab)
    if is_masked:
        where.request.constraint = Allows(rng.getrandbits(vocab) | 1 << rng.randrange(vocab))
    logits = random_logits(seed, 1, vocab)
    processed = reference.process_logits(logits[0].tolist(), where)
    if all(x == -math.inf for x in processed):
        return
    (token,) = sample(logits.clone(), [where]).token_ids
    (number,) = uniforms([where.request.seed], [where.sample], [where.position])
    if token == reference.sample(logits[0].tolist(), where, number):
        return
    # Logits and sums that float32 cannot tell apart may give another token.
    if where.params.temperature == 0:
        assert processed[token] == pytest.approx(max(processed), abs=1e-4)
        return
    summed = np.cumsum(reference.probabilities(processed, where.params))
    assert summed[token] > number - 1e-4
    assert token == 0 or summed[token - 1] <= number + 1e-4


def test_the_number_of_a_token_depends_on_seed_sample_and_position_alone():
    """Not on the batch, nor on whether its text is accepted or still drafted."""
    logits = random_logits(3, 1, 500, spread=0.1)

    def token(**changes):
        return sample(
            logits.clone(), [logit_position(**dict(temperature=1.0, seed=5) | changes)]
        ).token_ids[0]

    base = dict(prompt=[1, 2], output=[3, 4])
    assert token(**base) == token(prompt=[9] * 4) == token(prompt=[1, 2], output=[3], drafts=[8])
    others = [token(**base, sample=1), token(**base, seed=6), token(prompt=[1, 2, 3, 4, 5])]
    assert len({token(**base), *others}) == 4


@pytest.mark.parametrize(
    "params",
    [
        dict(temperature=0.7, top_k=4, top_p=0.95),
        dict(temperature=1.5, min_p=0.2),
        dict(temperature=1.0, repetition_penalty=1.4, frequency_penalty=0.3, presence_penalty=0.2),
        dict(temperature=1.0, logit_bias={1: 1.0, 4: 3.0}, min_tokens=9, end_ids=[0]),
    ],
    ids=["top-k and top-p", "min-p", "penalties", "bias and min_tokens"],
)
def test_drawn_frequencies_are_the_probabilities(params):
    logits = torch.tensor([[1.0, 0.0, -1.0, 0.5, -2.0, 0.7]])
    count = 20_000
    one = logit_position([0, 1], [3, 3, 4], seed=3, **params)
    positions = [LogitPosition(one.request, one.params, sample, ()) for sample in range(count)]
    found = Counter(sample(logits.repeat(count, 1), positions).token_ids)
    adjusted = reference.process_logits(logits[0].tolist(), positions[0])
    expected = reference.probabilities(adjusted, positions[0].params)
    possible = [token for token, probability in enumerate(expected) if probability > 0]
    assert set(found) == set(possible)
    chi_square = sum(
        (found[t] - count * expected[t]) ** 2 / (count * expected[t]) for t in possible
    )
    # One in a thousand lies above, for 1 to 5 degrees of freedom.
    assert chi_square < [10.8, 13.8, 16.3, 18.5, 20.5][len(possible) - 2]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error(bad, temperature):
    params = dict(temperature=temperature, top_p=0.9)
    with pytest.raises(FloatingPointError):
        sample(
            torch.tensor([[0.0, 1.0], [0.0, bad]]),
            [logit_position(**params), logit_position(**params)],
        )


class TestUniforms:
    def test_each_depends_on_its_own_entry_alone(self):
        many = uniforms([5, 6, 7], [0, 1, 2], [10, 11, 12])
        assert many[1] == uniforms([6], [1], [11])[0]

    def test_seed_sample_and_position_all_matter(self):
        grid = [(s, n, p) for s in range(-3, 20) for n in range(6) for p in range(50)]
        numbers = uniforms(*map(list, zip(*grid, strict=True)))
        assert len(set(numbers)) == len(grid)

    def test_large_and_negative_seeds_are_fine(self):
        numbers = uniforms([2**63, -1, 2**64 + 1, 1], [0] * 4, [0] * 4)
        assert all(0 <= number < 1 for number in numbers)

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
