"""Lesson 01's exercise: right functions are accepted and draw in the engine."""

import math

import numpy as np
import pytest
import torch

from checks import check
from checks.lesson_01 import YourDistribution, cases
from engine import Engine, EngineConfig, SamplingParams
from engine.compute.sampling import truncation
from solutions.lesson_01 import distribution as solution
from tests.lessons.wrong.lesson_01 import cut


def mask_then_softmax(logits, temperature, top_k, top_p):
    """With numpy; ties at a cut all stay, as in the engine."""
    x = np.array(logits)
    if temperature == 0:
        return np.eye(len(x))[x.argmax()]
    x = x / temperature
    if 0 < top_k < len(x):
        x[x < np.sort(x)[-top_k]] = -np.inf
    p = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    falling = np.sort(p)[::-1]
    place = min(np.searchsorted(falling.cumsum(), top_p - 1e-12), len(p) - 1)
    p[p < falling[place]] = 0
    return p / p.sum()


def later_of_equals_first(logits, temperature, top_k, top_p):
    return cut(logits[::-1], temperature, top_k, top_p)[::-1]


def zero_is_nearly_zero(logits, temperature, top_k, top_p):
    """Tokens that tie share at temperature 0, as in the limit."""
    return solution(
        logits, temperature or 1e-4, top_k if temperature else 0, top_p if temperature else 1
    )


def stops_after_crossing_only(logits, temperature, top_k, top_p):
    """Hugging Face's rule: a token goes if those before it reach top_p."""
    if temperature == 0:
        return solution(logits, 0, 0, 1)
    shares = np.array(solution(logits, temperature, top_k, 1.0))
    order = np.argsort(-shares)
    gone = order[shares[order].cumsum() - shares[order] >= top_p]
    shares[gone] = 0
    return shares / shares.sum()


def power_of_shares(logits, temperature, top_k, top_p):
    """Softmax first, then the power 1 / temperature: the same shares."""
    best = max(logits)
    shares = [np.exp(one - best) for one in logits]
    if temperature == 0:
        return [float(one == best) / logits.count(best) for one in logits]
    shares = np.array(shares) ** (1 / temperature)
    order = np.argsort(-shares, kind="stable")
    shares[order[top_k or len(shares) :]] = 0
    shares /= shares.sum()
    before = shares[order].cumsum() - shares[order]
    shares[order[before >= top_p - 1e-12]] = 0
    return (shares / shares.sum()).tolist()


def with_torch(logits, temperature, top_k, top_p):
    if temperature == 0:
        return torch.nn.functional.one_hot(torch.tensor(logits).argmax(), len(logits)).tolist()
    x = torch.tensor(logits, dtype=torch.float64) / temperature
    values, places = x.sort(descending=True, stable=True)
    if top_k:
        values[top_k:] = -torch.inf
    p = values.softmax(0)
    p[p.cumsum(0) - p >= top_p - 1e-12] = 0
    return torch.zeros_like(p).scatter(0, places, p / p.sum())


def stops_when_the_sum_exceeds(logits, temperature, top_k, top_p):
    if temperature == 0:
        best = logits.index(max(logits))
        return [1.0 if i == best else 0.0 for i in range(len(logits))]
    shares = [math.exp((x - max(logits)) / temperature) for x in logits]
    order = sorted(range(len(shares)), key=lambda i: -shares[i])
    if top_k > 0:
        order = order[:top_k]
    whole = sum(shares[i] for i in order)
    kept, reached = [], 0
    for i in order:
        if reached / whole > top_p:
            break
        kept.append(i)
        reached += shares[i]
    whole = sum(shares[i] for i in kept)
    return [shares[i] / whole if i in kept else 0.0 for i in range(len(shares))]


def with_the_lessons_softmax(logits, temperature, top_k, top_p):
    if temperature == 0:
        best = max(range(len(logits)), key=lambda i: logits[i])
        return [float(i == best) for i in range(len(logits))]
    weights = [math.exp(x / temperature) for x in logits]
    order = sorted(range(len(logits)), key=lambda i: weights[i], reverse=True)[: top_k or None]
    whole = sum(weights[i] for i in order)
    kept, total = [], 0.0
    for i in order:
        kept.append(i)
        total += weights[i] / whole
        if total >= top_p:
            break
    whole = sum(weights[i] for i in kept)
    return [weights[i] / whole if i in kept else 0.0 for i in range(len(logits))]


def top_k_by_a_threshold(logits, temperature, top_k, top_p):
    """Top-k by a threshold: equal scores all stay."""
    if temperature == 0:
        best = logits.index(max(logits))
        return [1.0 if i == best else 0.0 for i in range(len(logits))]
    w = np.exp((np.array(logits, float) - max(logits)) / temperature)
    if top_k:
        w[w < np.sort(w)[::-1][min(top_k, len(w)) - 1]] = 0
    p = w / w.sum()
    order = np.argsort(-p, kind="stable")
    last = int(np.searchsorted(np.cumsum(p[order]), top_p - 1e-12))
    p[order[last + 1 :]] = 0
    return (p / p.sum()).tolist()


def with_numpy_mask(logits, temperature, top_k, top_p):
    x = np.asarray(logits, dtype=float)
    if temperature == 0:
        return np.eye(len(x))[x.argmax()]
    x = x / temperature
    ranks = np.argsort(np.argsort(-x, kind="stable"))
    if top_k > 0:
        x = np.where(ranks < top_k, x, -np.inf)
    p = np.exp(x - x.max())
    p /= p.sum()
    order = np.argsort(ranks)
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= top_p]] = 0
    return p / p.sum()


def recursive_top_p(logits, temperature, top_k, top_p):
    n = len(logits)
    if not temperature:
        best = max(range(n), key=logits.__getitem__)
        return tuple(int(i == best) for i in range(n))
    k = top_k if top_k else n
    ranked = sorted(((x, -i) for i, x in enumerate(logits)), reverse=True)[:k]
    top = ranked[0][0]
    weight = {-i: math.exp((x - top) / temperature) for x, i in ranked}
    goal = top_p * math.fsum(weight.values())

    def keep(rest, so_far):
        if not rest or so_far >= goal:
            return []
        _, i = rest[0]
        return [-i, *keep(rest[1:], so_far + weight[-i])]

    kept = keep(ranked, 0.0)
    total = math.fsum(weight[i] for i in kept)
    return [weight[i] / total if i in kept else 0 for i in range(n)]


def greedy_is_top_k_one(logits, temperature, top_k, top_p):
    """Reuses top-k for temperature 0: one token, with any temperature."""
    if temperature == 0:
        temperature, top_k = 1.0, 1
    scaled = [score / temperature for score in logits]
    best = max(scaled)
    order = sorted(range(len(scaled)), key=lambda i: scaled[i], reverse=True)
    keep = set(order[:top_k] if top_k != 0 else order)
    probs = [math.exp(s - best) if i in keep else 0.0 for i, s in enumerate(scaled)]
    total = sum(probs)
    probs = [x / total for x in probs]
    cumulative, final = 0.0, [0.0] * len(probs)
    for i in order:
        if cumulative < top_p and i in keep:
            final[i] = probs[i]
        cumulative += probs[i]
    total = sum(final)
    return [x / total for x in final]


RIGHT = [
    solution,
    mask_then_softmax,
    later_of_equals_first,
    zero_is_nearly_zero,
    stops_after_crossing_only,
    power_of_shares,
    with_torch,
    stops_when_the_sum_exceeds,
    with_the_lessons_softmax,
    top_k_by_a_threshold,
    with_numpy_mask,
    recursive_top_p,
    greedy_is_top_k_one,
]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_distribution_is_accepted(right, capsys) -> None:
    logits_to_probs = check.lesson_01(right)
    assert f"{right.__name__}() keeps its promises in all" in capsys.readouterr().out
    assert isinstance(logits_to_probs, YourDistribution)


def test_what_a_learner_wrote_draws_in_the_engine_and_says_what_the_engines_own_would() -> None:
    asked = [
        SamplingParams(max_tokens=12, temperature=t, top_k=k, top_p=p, seed=7)
        for t, k, p in ((0.8, 0, 0.9), (1.2, 5, 1.0), (0.0, 0, 1.0))
    ]
    engine = Engine.load("bundled", EngineConfig())
    own = engine.complete(["Once upon a time"] * 3, asked, progress=False)
    engine.runner.logits_to_probs = YourDistribution(solution)
    yours = engine.complete(["Once upon a time"] * 3, asked, progress=False)
    assert [one.token_ids for one in yours] == [one.token_ids for one in own]


def test_the_engine_uses_the_learners_part() -> None:
    engine = Engine.load("bundled", EngineConfig())
    always_a = YourDistribution(lambda logits, *asked: [0.0] * 97 + [1.0] + [0.0] * 1438)
    engine.runner.logits_to_probs = always_a
    [answer] = engine.complete(
        ["Once"], SamplingParams(max_tokens=3, temperature=1.0), progress=False
    )
    assert answer.token_ids == [97, 97, 97]


def stub(logits, temperature, top_k, top_p):
    """A probability for each token."""
    ...


def test_an_untouched_stub_counts_as_unwritten_and_the_engine_uses_its_own(capsys) -> None:
    assert check.lesson_01(stub) is truncation.truncated_probs
    assert "not written yet" in capsys.readouterr().out


def test_the_smallest_cases_come_first_and_there_are_ties_and_longer_lists() -> None:
    tried = cases()
    assert len(tried[0].logits) == 1
    assert any(len(set(case.logits)) < len(case.logits) for case in tried)
    assert max(len(case.logits) for case in tried) == 9
