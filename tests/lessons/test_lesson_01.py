"""Lesson 01's exercise: wrong distributions are refused helpfully, right ones draw in the engine."""

import math

import numpy as np
import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_01 import YourDistribution, attempt, cases
from engine import Engine, EngineConfig, SamplingParams
from engine.compute.sampling import truncation
from solutions.lesson_01 import distribution as solution


def verdict(part) -> Verdict:
    return judge(part, cases(), attempt)


def softmax(logits, temperature):
    weights = [math.exp((one - max(logits)) / temperature) for one in logits]
    return [one / sum(weights) for one in weights]


def cut(logits, temperature, top_k, top_p, *, until=lambda summed, p: summed >= p, share=True):
    """The lesson's rule with two screws to turn it wrong."""
    if temperature == 0:
        return solution(logits, 0, 0, 1)
    shares = softmax(logits, temperature)
    order = sorted(range(len(logits)), key=lambda i: -shares[i])[: top_k or None]
    whole, summed, kept = sum(shares[i] for i in order), 0.0, []
    for i in order:
        if kept and until(summed + shares[i] / whole, top_p) is None:
            break
        kept.append(i)
        summed += shares[i] / whole
        if until(summed, top_p):
            break
    whole = sum(shares[i] for i in kept) if share else 1
    return [shares[i] / whole if i in kept else 0.0 for i in range(len(logits))]


# Wrong


def drops_the_crossing_token(logits, temperature, top_k, top_p):
    def until(summed, p):
        return None if summed > p + 1e-9 else False

    return cut(logits, temperature, top_k, top_p, until=until)


def stops_before_crossing(logits, temperature, top_k, top_p):
    """The classic error. It also loses a token where three rounded shares sum to more than 1."""
    if temperature == 0:
        return solution(logits, 0, 0, 1)
    shares = softmax(logits, temperature)
    order = sorted(range(len(logits)), key=lambda i: -shares[i])[: top_k or None]
    whole, summed, kept = sum(shares[i] for i in order), 0.0, []
    for i in order:
        if kept and summed + shares[i] / whole > top_p:
            break
        kept.append(i)
        summed += shares[i] / whole
    whole = sum(shares[i] for i in kept)
    return [shares[i] / whole if i in kept else 0.0 for i in range(len(logits))]


def loses_a_token_to_rounding(logits, temperature, top_k, top_p):
    wrong = stops_before_crossing(logits, temperature, top_k, top_p)
    return wrong if top_p == 1 else solution(logits, temperature, top_k, top_p)


def cuts_before_the_temperature(logits, temperature, top_k, top_p):
    if temperature == 0:
        return solution(logits, 0, 0, 1)
    kept = [share > 0 for share in solution(logits, 1.0, top_k, top_p)]
    shares = [
        share * is_kept for share, is_kept in zip(softmax(logits, temperature), kept, strict=True)
    ]
    return [one / sum(shares) for one in shares]


def zero_gives_1_to_all_that_tie(logits, temperature, top_k, top_p):
    if temperature == 0:
        return [float(one == max(logits)) for one in logits]
    return solution(logits, temperature, top_k, top_p)


def keeps_nobody_where_the_first_crosses(logits, temperature, top_k, top_p):
    shares = solution(logits, temperature, top_k, top_p)
    return [0.0] * len(logits) if 1 in shares and temperature > 0 and top_p < 1 else shares


def forgets_to_share(logits, temperature, top_k, top_p):
    return cut(logits, temperature, top_k, top_p, share=False)


def divides_by_zero(logits, temperature, top_k, top_p):
    with np.errstate(all="ignore"):
        if temperature == 0:
            weights = np.exp((np.array(logits) - max(logits)) / np.float64(0))
            return (weights / weights.sum()).tolist()
    return solution(logits, temperature, top_k, top_p)


def divides_by_zero_in_python(logits, temperature, top_k, top_p):
    [one / temperature for one in logits]
    return solution(logits, temperature, top_k, top_p)


def top_p_first(logits, temperature, top_k, top_p):
    kept = solution(logits, temperature, 0, top_p)
    allowed = solution(logits, temperature, top_k, 1.0)
    both = [one if other > 0 else 0.0 for one, other in zip(kept, allowed, strict=True)]
    return [one / sum(both) for one in both]


def ignores_top_k(logits, temperature, top_k, top_p):
    return solution(logits, temperature, 0, top_p)


def zero_k_keeps_none(logits, temperature, top_k, top_p):
    return solution(logits, temperature, top_k or 1, top_p)


def ignores_temperature(logits, temperature, top_k, top_p):
    return solution(logits, temperature and 1.0, top_k, top_p)


def multiplies_by_temperature(logits, temperature, top_k, top_p):
    return solution(logits, temperature and 1 / temperature, top_k, top_p)


def sorted_answer(logits, temperature, top_k, top_p):
    return sorted(solution(logits, temperature, top_k, top_p), reverse=True)


def cut_at_a_probability(logits, temperature, top_k, top_p):
    shares = solution(logits, temperature, top_k, 1.0)
    kept = [one if one >= min(1 - top_p, max(shares)) - 1e-12 else 0.0 for one in shares]
    return [one / sum(kept) for one in kept]


def only_the_kept(logits, temperature, top_k, top_p):
    return [one for one in solution(logits, temperature, top_k, top_p) if one > 0]


def proportional_to_logits(logits, temperature, top_k, top_p):
    least = min(logits) - 1
    shares = [one - least for one in logits]
    return solution([math.log(one) for one in shares], temperature, top_k, top_p)


def zero_is_uniform(logits, temperature, top_k, top_p):
    if temperature == 0:
        return [1 / len(logits)] * len(logits)
    return solution(logits, temperature, top_k, top_p)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            drops_the_crossing_token,
            ["You keep 1 token, with 0.731 of the probability. Asked is 0.9.", "in or out?"],
        ),
        (
            stops_before_crossing,
            ["You keep 1 token, with 0.731 of the probability. Asked is 0.9.", "in or out?"],
        ),
        (loses_a_token_to_rounding, ["You keep 2 tokens of 3.", "Shares are rounded"]),
        (
            cuts_before_the_temperature,
            ["temperature = 2", "the smallest set that reaches p", "temperature or cut?"],
        ),
        (zero_gives_1_to_all_that_tie, ["[1.000, 1.000]", "What do your numbers sum to?"]),
        (
            keeps_nobody_where_the_first_crosses,
            ["You keep no token at all.", "somebody is always left", "in or out?"],
        ),
        (forgets_to_share, ["which sums to 0.", "the probabilities sum to 1", "leaves a gap"]),
        (divides_by_zero, ["With temperature 0 you returned [nan", "Where do you divide?"]),
        (divides_by_zero_in_python, ["raised ZeroDivisionError", "`[one / temperature"]),
        (
            top_p_first,
            ["Top-k cuts first.", "of what top-k leaves", "the smallest set that reaches p"],
        ),
        (ignores_top_k, ["You keep 2 tokens, with top_k = 1.", "top-k keeps the k likeliest"]),
        (zero_k_keeps_none, ["a token is cut only if", "What does top_k = 0 cut here"]),
        (ignores_temperature, ["With temperature 1 it would be the same."]),
        (multiplies_by_temperature, ["bolder, or more careful?"]),
        (sorted_answer, ["Compare two of the tokens"]),
        (cut_at_a_probability, ["top-p keeps the smallest set that reaches p"]),
        (only_the_kept, ["You returned 1 number for 2 logits.", "Those that are cut have one"]),
        (proportional_to_logits, ["in proportion to e^(logit / temperature)"]),
        (zero_is_uniform, ["at temperature 0 the likeliest token is certain"]),
    ],
)
def test_a_wrong_distribution_is_refused_with_the_case_and_the_promise(
    wrong, said: list[str]
) -> None:
    found = verdict(wrong)
    assert not found.passed
    message = " ".join(str(found).split())
    for words in said:
        assert words in message


# Right


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


RIGHT = [
    solution,
    mask_then_softmax,
    later_of_equals_first,
    zero_is_nearly_zero,
    stops_after_crossing_only,
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


def test_the_engine_asks_the_learners_part_and_not_its_own() -> None:
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


def test_an_untouched_stub_is_not_written_yet_and_the_engine_runs_its_own(capsys) -> None:
    assert check.lesson_01(stub) is truncation.truncated_probs
    assert "not written yet" in capsys.readouterr().out


def test_the_smallest_cases_come_first_and_there_are_ties_and_longer_lists() -> None:
    tried = cases()
    assert len(tried[0].logits) == 1
    assert any(len(set(case.logits)) < len(case.logits) for case in tried)
    assert max(len(case.logits) for case in tried) == 9
