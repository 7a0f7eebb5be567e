"""Sampling through the runner: seeds, samples of one prompt, verified drafts."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.compute.sampling.sampler import draw
from engine.speculation.verification import count_accepted
from tests.engine.compute.driver import Driver
from tests.engine.compute.judge import PROMPT, reference_logits

WARM = dict(temperature=1.0, top_k=20, top_p=0.95)


def alone(directory, prompt, tokens, **params):
    driver = Driver(directory)
    return driver.generate([driver.request(prompt, **params)], tokens)[0]


def test_a_seed_gives_the_same_tokens_whatever_else_is_in_the_batch(qwen3):
    directory, _ = qwen3
    expected = alone(directory, PROMPT[:9], 25, seed=42, **WARM)
    driver = Driver(directory, num_blocks=128, seed=5)
    ours = driver.request(PROMPT[:9], seed=42, **WARM)
    others = [driver.request(PROMPT[i:20], seed=i, **WARM) for i in range(5)]
    others += [driver.request(PROMPT[3:18])]
    driver.run([driver.row(r) for r in others])
    driver.run([driver.row(ours, 4), *(driver.row(r) for r in others)])
    driver.generate([*others[:3], ours, *others[3:]], 25)
    assert ours.output_ids[:25] == expected
    assert alone(directory, PROMPT[:9], 25, seed=43, **WARM) != expected


def test_without_a_seed_the_request_s_root_decides(qwen3):
    driver = Driver(qwen3[0])
    one, other = (driver.request(PROMPT[:9], **WARM) for _ in range(2))
    driver.generate([one, other], 25)
    assert one.output_ids != other.output_ids
    assert one.output_ids == alone(qwen3[0], PROMPT[:9], 25, seed=one.root, **WARM)


def test_samples_of_one_prompt_differ_from_the_first_token_on(qwen3):
    driver = Driver(qwen3[0])
    request = driver.request(PROMPT, temperature=1.5, n=16, seed=1)
    greedy = driver.request(PROMPT, n=3)
    rows = [driver.row(request, samples=range(16)), driver.row(greedy, samples=range(3))]
    first, second = driver.runner.run(rows, [])
    assert len({sample.ids[0] for sample in first}) > 4
    assert second[0].ids == second[1].ids == second[2].ids
    # Sample 5 draws the token it would draw in a row of its own.
    request.block_table, request.sample = [], 5
    again = driver.runner.run([driver.row(request)], [])
    assert again[0][0].ids == first[5].ids


def speculate(driver, request, tokens, guess):
    """Generate with drafts `guess(request)` in every step; returns the number of steps."""
    steps = 0
    while len(request.output_ids) < tokens:
        # The first step computes the prompt and drafts at once, as after a prefix hit.
        driver.run([driver.row(request, drafts=guess(request))])
        steps += 1
    del request.tokens[request.prompt_length + tokens :]
    return steps


# Parameters that depend on the text before a position must take the drafts into account.
HISTORY = dict(
    repetition_penalty=1.3, frequency_penalty=0.8, presence_penalty=0.5, logit_bias={9: 1.0}
)


@pytest.mark.parametrize(
    "params",
    [{}, dict(seed=8, **WARM), HISTORY, dict(seed=8, **WARM, **HISTORY)],
    ids=["greedy", "sampled", "greedy, penalised", "sampled, penalised"],
)
@settings(max_examples=20, deadline=None)
@given(choices=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=20, max_size=20))
def test_drafts_change_no_token(qwen3, params, choices):
    """Drafts that are right for a while and then wrong, of every length."""
    expected = alone(qwen3[0], PROMPT, 20, **params)
    driver = Driver(qwen3[0])
    request = driver.request(PROMPT, **params)

    def guess(request):
        done = len(request.output_ids)
        right, wrong = choices[done]
        draft = expected[done : done + right]
        return draft + [(token + 1) % 97 for token in expected[done + right :][:wrong]]

    steps = speculate(driver, request, 20, guess)
    assert request.output_ids == expected
    assert steps <= 20


def test_min_tokens_and_top_logprobs_are_those_of_each_draft_s_own_position(qwen3):
    params = dict(logprobs=2, min_tokens=4, repetition_penalty=1.2)
    driver = Driver(qwen3[0])
    plain, drafted = (driver.request(PROMPT, **params) for _ in range(2))
    for request in (plain, drafted):
        request.end_ids = frozenset(token for token in range(97) if token % 5)
    top = []
    while len(plain.output_ids) < 6:
        ((sampled,),) = driver.run([driver.row(plain)])
        top += sampled.top
    assert not any(token % 5 for token in plain.output_ids[:4])
    assert any(token % 5 for token in plain.output_ids[4:])
    ((sampled,),) = driver.run([driver.row(drafted, drafts=plain.output_ids[:5])])
    assert sampled.ids == plain.output_ids
    assert [[token for token, _ in best] for best in sampled.top] == [
        [token for token, _ in best] for best in top
    ]
    # The most likely tokens are reported before min_tokens forbids the end tokens.
    assert any(token % 5 for best in top[:4] for token, _ in best)


def test_prompts_are_scored_beside_samples_that_share_their_logits(qwen3):
    """One scored position, and two samples of the same last token."""
    directory, model = qwen3
    driver = Driver(directory)
    request = driver.request(PROMPT[:2], prompt_logprobs=1, temperature=1.5, n=2, seed=4)
    row = driver.row(request, samples=[0, 1])
    (samples,) = driver.runner.run([row], [])
    expected = reference_logits(model, PROMPT[:2]).log_softmax(-1)
    assert [score.logprob for score in row.scores] == pytest.approx(
        [expected[0, PROMPT[1]].item()], abs=1e-4
    )
    for sample in samples:
        assert sample.logprobs[0] == pytest.approx(expected[1, sample.ids[0]].item(), abs=1e-4)


def test_right_drafts_save_steps_and_report_their_own_logprobs(qwen3):
    expected = alone(qwen3[0], PROMPT, 21)
    driver = Driver(qwen3[0])
    request = driver.request(PROMPT)
    steps = speculate(driver, request, 21, lambda r: expected[len(r.output_ids) :][:6])
    assert steps == 3
    plain = Driver(qwen3[0])
    reference = plain.request(PROMPT)
    plain.generate([reference], 21)
    assert request.logprobs[:21] == pytest.approx(reference.logprobs, abs=1e-4)


def test_verified_drafts_keep_the_distribution_exactly():
    """Every text of two tokens comes out with its own probability, whatever is drafted.

    Probabilities are multiples of 1/8, so eight equally spaced numbers per position cover all cases.
    """
    numbers = (torch.arange(8).double() + 0.5) / 8
    first = torch.tensor([4, 0, 3, 1]).double() / 8
    after = torch.tensor([[1, 2, 3, 2], [8, 0, 0, 0], [0, 5, 0, 3], [2, 2, 2, 2]]).double() / 8
    for drafts in itertools.product(range(4), repeat=2):
        # The model's choices: after the text, after the first draft, after both.
        rows = torch.stack([first, after[drafts[0]]])
        found = torch.zeros(4, 4).double()
        for u, v, w in itertools.product(numbers, repeat=3):
            chosen = draw(rows, torch.stack([u, v])).tolist()
            text = chosen[: count_accepted(drafts[:1], chosen) + 1]
            if len(text) == 1:  # rejected: the next step goes on from the token drawn instead
                text += draw(after[text[0]][None], w[None]).tolist()
            found[text[0], text[1]] += 1 / 8**3
        torch.testing.assert_close(found, first[:, None] * after, atol=1e-12, rtol=0)
