"""Reported log-probabilities against plain floats; equal floats where they must be equal."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.compute.sampling.prompt_logprobs import score_prompts
from engine.compute.sampling.sampler import sample, top_logprobs
from engine.runner import Row
from tests.engine.compute.sampler_cases import (
    log_softmax,
    logit_position,
    most_likely,
    random_logits,
    random_position,
    reported,
)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 6),
    vocab=st.sampled_from([1, 6, 60]),
    ties=st.booleans(),
)
def test_logprobs_and_likeliest_are_the_model_s_own_with_the_bias(seed, rows, vocab, ties):
    """Independent of penalties, temperature and truncation."""
    rng = random.Random(seed)
    positions = [random_position(rng, vocab) for _ in range(rows)]
    logits = random_logits(seed, rows, vocab, ties=ties)
    output = sample(logits.clone(), positions)
    for i, row in enumerate(logits.tolist()):
        expected_logprobs = reported(row, positions[i])
        assert output.logprobs[i] == pytest.approx(expected_logprobs[output.token_ids[i]], abs=1e-4)
        wanted = positions[i].params.logprobs
        assert (i in output.top_logprobs) == (wanted is not None)
        if wanted is None:
            continue
        expected = most_likely(row, positions[i], wanted)
        found = output.top_logprobs[i]
        assert [logprob for _, logprob in found] == pytest.approx(
            [logprob for _, logprob in expected], abs=1e-4
        )
        for token, logprob in found:
            assert logprob == pytest.approx(expected_logprobs[token], abs=1e-4)
        assert dict(found).get(output.token_ids[i], output.logprobs[i]) == output.logprobs[i]


def test_top_logprobs_come_in_order_and_equals_by_id():
    logprobs = torch.tensor([[1.0, 3.0, 1.0, 2.0, 1.0, 3.0]]).log_softmax(-1)
    (found,) = top_logprobs(logprobs, [4])
    assert [token for token, _ in found] == [1, 5, 3, 0]
    assert [value for _, value in found] == logprobs[0, [1, 5, 3, 0]].tolist()
    # The number of tokens that other rows ask for makes no difference.
    assert top_logprobs(logprobs.expand(3, -1), [4, 1, 6])[:2] == [found, found[:1]]
    assert top_logprobs(logprobs, [0]) == [[]]
    assert [token for token, _ in top_logprobs(logprobs, [99])[0]] == [1, 5, 3, 0, 2, 4]


def test_greedy_takes_the_first_of_the_likeliest_even_when_tied():
    for seed in range(30):
        output = sample(
            random_logits(seed, 1, 40, spread=1.0, ties=True), [logit_position(logprobs=3)]
        )
        assert output.top_logprobs[0][0] == (output.token_ids[0], output.logprobs[0])


def scored_row(prompt, start, count, top, samples=(), **params):
    request = logit_position(prompt, prompt_logprobs=top, **params).request
    return Row(request, start, count, [], list(samples))


def test_prompt_scores_are_without_bias_and_beside_other_rows():
    prompt = [3, 1, 4, 1, 5, 9]
    logits = random_logits(7, 5 + 2, 12)
    rows = [
        Row(logit_position().request, 0, 1, [], [0]),
        scored_row(prompt, 0, 6, 3, [0], logit_bias={3: 50.0}),
        scored_row(prompt, 1, 2, 0),
    ]
    score_prompts(logits, rows)
    assert rows[0].scores == []
    assert [len(row.scores) for row in rows] == [0, 5, 2]
    for first, row in ((0, rows[1]), (5, rows[2])):
        for i, score in enumerate(row.scores):
            expected = log_softmax(logits[first + i].tolist())
            assert score.logprob == pytest.approx(expected[prompt[row.start + 1 + i]], abs=1e-5)
            assert len(score.top) == row.request.params.prompt_logprobs
    best = [score.top[0][0] for score in rows[1].scores]
    assert best == logits[:5].argmax(-1).tolist()


def test_a_long_prompt_is_scored_in_slices_with_the_same_floats():
    rng = random.Random(0)
    prompt = [rng.randrange(20) for _ in range(601)]
    logits = random_logits(0, 600, 20, ties=True)
    row = scored_row(prompt, 0, 601, 4)
    score_prompts(logits, [row])
    assert len(row.scores) == 600
    whole = logits.log_softmax(-1)
    for i, score in enumerate(row.scores):
        assert score.logprob == whole[i, prompt[i + 1]].item()
        assert dict(score.top).get(prompt[i + 1], score.logprob) == score.logprob


def test_prompts_are_not_scored_with_logits_that_are_not_finite():
    logits = random_logits(0, 3, 20)
    logits[2, 4] = float("nan")
    with pytest.raises(FloatingPointError):
        score_prompts(logits, [scored_row([1, 2, 3, 4], 0, 4, 1)])
