"""The decoder against transformers, in float32, on small random models."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.compute.driver import Driver
from tests.engine.compute.judge import PROMPT, reference_logits

TIE = 1e-4  # where the two likeliest logits are closer than this, either may win


def assert_greedy(model, request):
    """Every output token has the highest logit, given the text before it."""
    logits = reference_logits(model, request.tokens)
    for position in range(request.prompt_length, len(request.tokens)):
        best = logits[position - 1].max()
        assert logits[position - 1][request.tokens[position]] > best - TIE


def test_logits_equal_those_of_transformers(any_model):
    directory, model = any_model
    driver = Driver(directory)
    request = driver.request(PROMPT[:1])
    # Drafts make the runner compute the logits of every position.
    logits = driver.logits([driver.row(request, drafts=PROMPT[1:])])
    torch.testing.assert_close(logits, reference_logits(model, PROMPT), atol=2e-5, rtol=1e-4)


def test_greedy_tokens_and_logprobs(any_model):
    directory, model = any_model
    driver = Driver(directory, num_blocks=96)
    # Some of the models repeat the prompt's last token, so the prompts end differently.
    requests = [driver.request(PROMPT[: len(PROMPT) - cut]) for cut in range(6)]
    outputs = driver.generate(requests, 10)
    said = {token for output in outputs for token in output}
    assert len(said) >= 5, "a model that says one thing tests nothing"
    for request in requests:
        assert_greedy(model, request)
        expected = reference_logits(model, request.tokens).log_softmax(-1)
        for position, logprob in enumerate(request.logprobs, request.prompt_length):
            token = request.tokens[position]
            assert logprob == pytest.approx(expected[position - 1][token].item(), abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close(any_model, dtype):
    directory, model = any_model
    driver = Driver(directory, dtype=dtype)
    logits = driver.logits([driver.row(driver.request(PROMPT))])
    expected = reference_logits(model, PROMPT)[-1:]
    assert (logits - expected).abs().max() < 0.05 * expected.abs().max()


@settings(max_examples=40, deadline=None)
@given(cuts=st.sets(st.integers(1, len(PROMPT) - 1)), seed=st.integers(0, 100))
def test_any_chunking_gives_the_same(qwen3, cuts, seed):
    directory, model = qwen3
    driver = Driver(directory, seed=seed)
    request = driver.request(PROMPT)
    bounds = [0, *sorted(cuts), len(PROMPT)]
    for low, high in pairwise(bounds[:-1]):
        assert driver.run([driver.row(request, high - low)]) == [[]]
    logits = driver.logits([driver.row(request)])
    torch.testing.assert_close(logits, reference_logits(model, PROMPT)[-1:], atol=2e-5, rtol=1e-4)


@settings(max_examples=25, deadline=None)
@given(
    requests=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 17), st.integers(0, 3)), min_size=2, max_size=6
    ),
    seed=st.integers(0, 100),
)
def test_ragged_mixed_batches_give_what_each_gives_alone(qwen3, requests, seed):
    """Prompts of any length in chunks of any size, starting at different steps."""
    directory, model = qwen3
    driver = Driver(directory, num_blocks=128, seed=seed)
    waiting = [
        (driver.request(PROMPT[i : i + length]), chunk, delay)
        for i, (length, chunk, delay) in enumerate(requests)
    ]
    for step in range(60):
        rows = [
            driver.row(request, min(chunk, request.num_uncomputed_tokens))
            for request, chunk, delay in waiting
            if step >= delay and len(request.output_ids) < 5
        ]
        if rows:
            driver.run(rows)
    for request, _, _ in waiting:
        assert len(request.output_ids) == 5
        assert_greedy(model, request)
