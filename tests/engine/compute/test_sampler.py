"""The vectorised sampler against plain floats and transformers: all rows at once or one by one."""

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engine.core.compute import sampling_reference as reference
from engine.core.compute.sampler import (
    draw,
    process_logits,
    sample,
    score_prompts,
    top_logprobs,
    truncated_probs,
)
from engine.core.compute.sampling_reference import probabilities
from engine.core.runner import Row, uniform
from engine.core.sampling_params import SamplingParams
from tests.engine.compute.sampler_cases import (
    log_softmax,
    logit_position,
    most_likely,
    random_logits,
    random_position,
    reported,
)
from tests.lazy import transformers


def test_draw_is_exact_at_its_thresholds():
    probabilities = torch.tensor([[0.25, 0.0, 0.5, 0.25, 0.0]]).double()
    eps = 2.0**-53
    for number, token in [
        (0.0, 0), (0.25 - eps, 0), (0.25, 2), (0.75 - eps, 2), (0.75, 3), (1 - eps, 3),
    ]:  # fmt: skip
        assert draw(probabilities, torch.tensor([number], dtype=torch.float64)).tolist() == [token]


@st.composite
def batches(draw):
    """Logits of some rows, and where each of them is sampled."""
    seed, rows = draw(st.integers(0, 10**6)), draw(st.integers(1, 8))
    vocab = draw(st.sampled_from([1, 6, 60, 300]))
    rng = random.Random(seed)
    positions = [random_position(rng, vocab) for _ in range(rows)]
    return random_logits(seed, rows, vocab, ties=draw(st.booleans())), positions


@settings(max_examples=75, deadline=None)
@given(batches())
def test_a_row_gets_in_any_batch_what_it_gets_alone_bit_by_bit(batch):
    logits, positions = batch
    together = sample(logits.clone(), positions)
    for i in range(len(positions)):
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


@settings(max_examples=75, deadline=None)
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
    number = uniform(where.request.seed, where.sample, where.position)
    if token == reference.sample(logits[0].tolist(), where, number):
        return
    # Logits and sums that float32 cannot tell apart may give another token.
    if where.params.temperature == 0:
        assert processed[token] == pytest.approx(max(processed), abs=1e-4)
        return
    summed = np.cumsum(reference.probabilities(processed, where.params))
    assert summed[token] > number - 1e-4
    assert token == 0 or summed[token - 1] <= number + 1e-4


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
    def test_seed_sample_and_position_all_matter(self):
        grid = [(s, n, p) for s in range(-3, 20) for n in range(6) for p in range(50)]
        assert len({uniform(*entry) for entry in grid}) == len(grid)

    @pytest.mark.parametrize("axis", range(3))
    def test_uniform_and_uncorrelated_along_every_axis(self, axis):
        count = 20_000
        entries = [[7, 0, 100] for _ in range(count)]
        for number, entry in enumerate(entries):
            entry[axis] = number
        numbers = [uniform(*entry) for entry in entries]
        histogram = np.histogram(numbers, bins=20, range=(0, 1))[0]
        chi_square = ((histogram - count / 20) ** 2 / (count / 20)).sum()
        assert chi_square < 43.8  # 19 degrees of freedom: one in a thousand lies above
        for lag in (1, 2, 3):
            assert abs(np.corrcoef(numbers[lag:], numbers[:-lag])[0, 1]) < 4 / math.sqrt(count)


FORBIDDEN = torch.finfo(torch.float32).min


def adjust(logits, positions):
    """The logits that `sample` takes tokens from."""
    logits = logits.clone()
    process_logits(logits, positions)
    return logits


@settings(max_examples=75, deadline=None)
@given(batches())
def test_adjusted_logits_equal_the_plain_ones(batch):
    logits, positions = batch
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


@settings(max_examples=75, deadline=None)
@given(batches())
def test_logprobs_and_likeliest_are_the_model_s_own_with_the_bias(batch):
    """Independent of penalties, temperature and truncation."""
    logits, positions = batch
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
