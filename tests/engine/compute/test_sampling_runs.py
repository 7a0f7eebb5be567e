"""Sampling through the runner: seeds and verified drafts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.compute.driver import Driver
from tests.engine.compute.judge import PROMPT

WARM = dict(temperature=1.0, top_k=20, top_p=0.95)


def alone(directory, prompt, tokens, **params):
    driver = Driver(directory)
    return driver.generate([driver.request(prompt, **params)], tokens)[0]


def test_without_a_seed_the_request_s_root_decides(qwen3):
    driver = Driver(qwen3[0])
    one, other = (driver.request(PROMPT[:9], **WARM) for _ in range(2))
    driver.generate([one, other], 25)
    assert one.output_ids != other.output_ids
    assert one.output_ids == alone(qwen3[0], PROMPT[:9], 25, seed=one.root, **WARM)


# Parameters that depend on the text before a position must take the drafts into account.
HISTORY = dict(
    repetition_penalty=1.3, frequency_penalty=0.8, presence_penalty=0.5, logit_bias={9: 1.0}
)


@pytest.mark.parametrize(
    "params",
    [{}, dict(seed=8, **WARM), HISTORY, dict(seed=8, **WARM, **HISTORY)],
    ids=["greedy", "sampled", "greedy, penalised", "sampled, penalised"],
)
@settings(max_examples=8, deadline=None)
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

    # The first step computes the prompt and drafts at once, as after a prefix hit.
    while len(request.output_ids) < 20:
        driver.run([driver.row(request, drafts=guess(request))])
    assert request.output_ids[:20] == expected
