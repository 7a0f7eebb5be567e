"""A verifier of one's own decides which drafts are kept; the rule of the paper is the engine's own."""

import pytest

from engine import Engine, EngineConfig, SamplingParams
from engine.core.request import Request
from engine.core.runner import LogitPosition
from engine.core.speculation.verification import ask_verifier
from tests.engine.drafters import Knowing
from tests.facts import raises_naming
from visualizer import read


class Paper:
    """min(1, p / q) for a drafter that is always sure, q = 1; then p without the draft."""

    def accept(self, p, drafts, numbers, pick):
        kept = []
        for row, draft, number in zip(p, drafts, numbers, strict=False):
            if number >= row[draft]:
                return [*kept, pick([0.0 if t == draft else w for t, w in enumerate(row)])]
            kept.append(draft)
        return [*kept, pick(p[len(kept)])]


class Answers:
    def __init__(self, ids):
        self.ids = ids

    def accept(self, p, drafts, numbers, pick):
        return self.ids


PROMPTS = [[7, 300, 9], [11, 12]]


def run(verifier, texts):
    """The log, and the texts that were told: prompt and output. Drafts come from `texts`."""
    drafter = Knowing(texts, wrong=lambda position: position % 3 == 0)
    engine = Engine.load("bundled", EngineConfig(), drafter=drafter, verifier=verifier)
    params = SamplingParams(max_tokens=24, temperature=0)
    done = engine.complete(PROMPTS, params, progress=False)
    return engine.log, [prompt + one.token_ids for prompt, one in zip(PROMPTS, done, strict=True)]


def test_greedy_text_and_accepted_drafts_are_those_of_the_engine_s_own_rule():
    _, told = run(None, [])
    log, own = run(None, told)
    yours_log, yours = run(Paper(), told)
    assert yours == own == told
    assert read(yours_log).tokens.drafted.sum() == read(log).tokens.drafted.sum() > 10
    assert read(yours_log).tokens.logprob.tolist() == pytest.approx(
        read(log).tokens.logprob.tolist(), abs=1e-3
    )


def positions(seed, drafts):
    request = Request(1, [0, 1], ["", ""], SamplingParams(max_tokens=9), seed=seed, prompt_length=2)
    return [
        LogitPosition(request, request.params, 0, drafts[:j], 2 + j) for j in range(len(drafts) + 1)
    ]


@pytest.mark.parametrize("ids", [[], [2, 1], [1, 0, 0]])
def test_an_answer_that_is_not_leading_drafts_and_a_token_is_refused(ids):
    with raises_naming(ValueError, [1]):
        ask_verifier(Answers(ids), positions(0, [1]), [[1 / 3] * 3] * 2)


def test_a_wrong_answer_ends_the_request_and_not_the_engine():
    _, (_, told) = run(None, [])
    log, _ = run(Answers([]), [told])
    assert read(log).requests.finish_reason.tolist() == ["stop", "error"]
