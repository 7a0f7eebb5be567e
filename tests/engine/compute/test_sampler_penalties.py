"""Bias, forbidden end tokens and penalties: all rows at once against one at a time."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.compute.sampling import reference
from engine.compute.sampling.sampler import process_logits, sample
from tests.engine.compute.sampler_cases import logit_position, random_logits, random_position
from tests.lazy import transformers

FORBIDDEN = torch.finfo(torch.float32).min


def adjust(logits, positions):
    """The logits that `sample` takes tokens from."""
    logits = logits.clone()
    process_logits(logits, positions)
    return logits


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 6),
    vocab=st.sampled_from([1, 6, 60]),
    ties=st.booleans(),
)
def test_adjusted_logits_equal_the_plain_ones(seed, rows, vocab, ties):
    rng = random.Random(seed)
    positions = [random_position(rng, vocab) for _ in range(rows)]
    logits = random_logits(seed, rows, vocab, ties=ties)
    found = adjust(logits, positions)
    for i, row in enumerate(logits.tolist()):
        expected = [max(x, FORBIDDEN) for x in reference.process_logits(row, positions[i])]
        torch.testing.assert_close(found[i], torch.tensor(expected), atol=2e-5, rtol=1e-5)


def test_each_penalty_looks_at_its_own_part_of_the_text():
    # Token 0 is in the prompt only, 1 in the output only (twice), 2 in both, 3 nowhere.
    text = dict(prompt=[0, 2], output=[1, 1, 2])
    logits = torch.tensor([[4.0, 4.0, -4.0, 4.0]])
    for params, expected in [
        (dict(repetition_penalty=2.0), [2.0, 2.0, -8.0, 4.0]),
        (dict(repetition_penalty=0.5), [8.0, 8.0, -2.0, 4.0]),
        (dict(frequency_penalty=1.0), [4.0, 2.0, -5.0, 4.0]),
        (dict(presence_penalty=1.0), [4.0, 3.0, -5.0, 4.0]),
        (dict(presence_penalty=-2.0), [4.0, 6.0, -2.0, 4.0]),
        # Repetition first: 4 / 2 - 2 * 1 - 1 and so on.
        (
            dict(repetition_penalty=2.0, frequency_penalty=1.0, presence_penalty=1.0),
            [2.0, -1.0, -10.0, 4.0],
        ),
    ]:
        assert adjust(logits, [logit_position(**text, **params)])[0].tolist() == expected


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    penalty=st.sampled_from([0.1, 0.8, 1.2, 10.0]),
    text=st.lists(st.integers(0, 39), min_size=2, max_size=60),
)
def test_repetition_equals_that_of_transformers(seed, penalty, text):
    logits = random_logits(seed, 1, 40)
    processor = transformers.RepetitionPenaltyLogitsProcessor(penalty)
    expected = processor(torch.tensor([text]), logits.clone())
    found = adjust(logits, [logit_position(text[:1], text[1:], repetition_penalty=penalty)])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("output", range(4))
def test_min_tokens_equals_that_of_transformers(output):
    logits = random_logits(1, 1, 10)
    text = [9] * (3 + output)
    processor = transformers.MinNewTokensLengthLogitsProcessor(3, 2, [0, 4], device="cpu")
    expected = processor(torch.tensor([text]), logits.clone())
    found = adjust(logits, [logit_position(text[:3], text[3:], end_ids=[0, 4], min_tokens=2)])
    assert torch.equal(found <= FORBIDDEN, expected == -torch.inf)
    assert torch.equal(found[found > FORBIDDEN], expected[expected > -torch.inf])


@pytest.mark.parametrize("temperature", [0.0, 1e-5, 1.0, 1e300])
def test_where_every_token_is_forbidden_one_is_taken_all_the_same(temperature):
    """A client that forbids everything must not end the step for the others."""
    all_ends = dict(end_ids=range(3), min_tokens=5, temperature=temperature, top_p=0.5, min_p=0.1)
    logits = random_logits(2, 2, 3)
    output = sample(logits.clone(), [logit_position(**all_ends), logit_position()])
    assert output.token_ids[0] in range(3)
    assert output.token_ids[1] == logits[1].argmax()
    # Where one is left, it is that one, however flat the distribution.
    some = all_ends | {"end_ids": [0, 2]}
    for seed in range(10):
        assert sample(logits[:1].clone(), [logit_position(**some, seed=seed)]).token_ids == [1]


@pytest.mark.parametrize("penalty", [1e-300, 1e300])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_absurd_penalties_stay_finite(penalty, temperature):
    logits = torch.tensor([[3.0, -2.0, 0.0, 1.0]])
    where = logit_position([0, 1, 2], repetition_penalty=penalty, temperature=temperature)
    assert sample(logits, [where]).token_ids == [3 if penalty > 1 else 0]
