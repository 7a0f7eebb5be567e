"""Lesson 01's exercise: right functions are accepted and draw in the engine."""

import numpy as np
import pytest

from checks import check
from checks.lesson_01 import YourDistribution
from engine import Engine, EngineConfig, SamplingParams
from engine.core.compute import sampler
from solutions.lesson_01 import distribution as solution

OWN = sampler.truncated_probs


def in_numpy(logits, temperature, top_k, top_p):
    x = np.array(logits)
    if temperature == 0:
        return np.eye(len(x))[x.argmax()]
    order = np.argsort(-x, kind="stable")[: top_k or None]
    p = np.exp((x[order] - x.max()) / temperature)
    sums = p.cumsum() / p.sum()
    count = np.searchsorted(sums, top_p - 1e-12) + 1 if top_p < 1 else len(p)
    shares = np.zeros(len(x))
    shares[order[:count]] = p[:count] / p[:count].sum()
    return shares


def stops_after_crossing_only(logits, temperature, top_k, top_p):
    """Hugging Face's rule: a token goes if those before it reach top_p."""
    if temperature == 0:
        return solution(logits, 0, 0, 1)
    shares = np.array(solution(logits, temperature, top_k, 1.0))
    order = np.argsort(-shares)
    gone = order[shares[order].cumsum() - shares[order] >= top_p]
    shares[gone] = 0
    return shares / shares.sum()


@pytest.mark.parametrize("right", [solution, in_numpy, stops_after_crossing_only])
def test_every_right_distribution_is_accepted(right) -> None:
    assert isinstance(check.lesson_01(right), YourDistribution)


def test_what_a_learner_wrote_draws_in_the_engine_and_says_what_the_engines_own_would() -> None:
    asked = [
        SamplingParams(max_tokens=4, temperature=t, top_k=k, top_p=p, seed=7)
        for t, k, p in ((0.8, 0, 0.9), (1.2, 5, 1.0), (0.0, 0, 1.0))
    ]
    engine = Engine.load("bundled", EngineConfig())

    def texts() -> list[list[int]]:
        answers = engine.complete(["Once upon a time"] * 3, asked, progress=False)
        return [one.token_ids for one in answers]

    own = texts()
    engine.runner.logits_to_probs = YourDistribution(solution)
    assert texts() == own
    always_a = YourDistribution(lambda logits, *asked: [0.0] * 97 + [1.0] + [0.0] * 1438)
    engine.runner.logits_to_probs = always_a
    assert texts()[0] == [97] * 4
