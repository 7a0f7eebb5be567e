"""Lesson 10's exercise: wrong ways to keep drafts are refused helpfully, right ones run."""

import numpy as np
import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_10 import Voice, attempt, cases
from engine import Engine, EngineConfig, SamplingParams
from solutions.lesson_10 import accept as solution


def verdict(accept) -> Verdict:
    return judge(accept, cases(), attempt)


# Wrong


def draws_from_the_model_again(p, q, drafts, uniforms, pick):
    kept = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number >= model[draft] / drafter[draft]:
            return [*kept, pick(model)]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def keeps_what_the_model_likes_at_least_as_much(p, q, drafts, uniforms, pick):
    kept = []
    for model, drafter, draft in zip(p, q, drafts, strict=False):
        if model[draft] < drafter[draft]:
            left = [max(0.0, m - d) for m, d in zip(model, drafter, strict=True)]
            return [*kept, pick(left)]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def upside_down(p, q, drafts, uniforms, pick):
    kept = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number * model[draft] >= drafter[draft]:
            left = [max(0.0, m - d) for m, d in zip(model, drafter, strict=True)]
            return [*kept, pick(left)]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def goes_on_after_a_refusal(p, q, drafts, uniforms, pick):
    said = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number >= model[draft] / drafter[draft]:
            draft = pick([max(0.0, m - d) for m, d in zip(model, drafter, strict=True)])
        said.append(draft)
    return [*said, pick(p[-1])]


def forgets_the_bonus(p, q, drafts, uniforms, pick):
    answer = solution(p, q, drafts, uniforms, pick)
    return answer[: max(1, len(drafts))] if drafts else answer


def draws_the_bonus_from_the_row_before(p, q, drafts, uniforms, pick):
    return solution([*p[: len(drafts)], p[len(drafts) - 1]], q, drafts, uniforms, pick)


def keeps_a_likely_draft(p, q, drafts, uniforms, pick):
    """Compares with the model's probability alone: right for a drafter that is always sure."""
    kept = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number >= model[draft]:
            left = [max(0.0, m - d) for m, d in zip(model, drafter, strict=True)]
            return [*kept, pick(left if sum(left) else model)]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def negative_weights(p, q, drafts, uniforms, pick):
    kept = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number >= model[draft] / drafter[draft]:
            return [*kept, pick([m - d for m, d in zip(model, drafter, strict=True)])]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def returns_a_count(p, q, drafts, uniforms, pick):
    return len(solution(p, q, drafts, uniforms, pick))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            draws_from_the_model_again,
            [
                "Over all drafts and all of chance, the first word came out as",
                "the text has the model's own distribution",
                "Drafts are kept as often as they should be.",
                "What is missing?",
            ],
        ),
        (
            keeps_what_the_model_likes_at_least_as_much,
            ["the text has the model's own distribution", "was kept in 0% of the cases."],
        ),
        (upside_down, ["All of it is the helper's voice: nothing of the model's is left."]),
        (
            goes_on_after_a_refusal,
            ["was guessed after a word that was never said.", "comes one token, and no more"],
        ),
        (forgets_the_bonus, ["every call ends with a token of the model's own"]),
        (draws_the_bonus_from_the_row_before, ["Which row did you draw from?"]),
        (keeps_a_likely_draft, ["the text has the model's own distribution", "was kept in"]),
        (negative_weights, ["weights are 0 or more", "what is left of it?"]),
        (returns_a_count, ["the answer is a list of tokens"]),
    ],
)
def test_a_wrong_rule_is_refused_with_words_that_help(wrong, said) -> None:
    message = " ".join(str(verdict(wrong)).split())
    assert "not yet" in message
    for words in said:
        assert words in message
    assert "max(" not in message, "the answer is not given away"


@pytest.mark.parametrize(
    ("wrong", "first"),
    [
        (draws_from_the_model_again, "cat 35%, dog 39% and owl 26%"),
        (keeps_what_the_model_likes_at_least_as_much, "cat 80%, dog 0% and owl 20%"),
        (upside_down, "cat 20%, dog 60% and owl 20%"),
    ],
)
def test_the_lessons_own_example_shows_both_distributions(wrong, first) -> None:
    [own] = [
        one
        for one in cases()
        if isinstance(one, Voice) and (one.p, one.q) == ((0.5, 0.3, 0.2), (0.2, 0.6, 0.2))
    ]
    message = " ".join(str(judge(wrong, [own], attempt)).split())
    assert f"the first word came out as {first}." in message
    assert "the model's own distribution, cat 50%, dog 30% and owl 20%" in message


# Right


def as_a_comparison_of_products(p, q, drafts, uniforms, pick):
    for j, draft in enumerate(drafts):
        if not uniforms[j] * q[j][draft] < p[j][draft]:
            left = [m - min(m, d) for m, d in zip(p[j], q[j], strict=True)]
            total = sum(left)
            return [*drafts[:j], pick([one / total for one in left])]
    return [*drafts, pick(p[len(drafts)])]


def as_a_cumulative_product(p, q, drafts, uniforms, pick):
    model, drafter = np.array(p), np.array(q)
    places = np.arange(len(drafts))
    good = np.array(uniforms) < model[places, drafts] / drafter[places, drafts]
    kept = int(np.cumprod(good).sum())
    left = model[kept] if kept == len(drafts) else (model[kept] - drafter[kept]).clip(0)
    return [*drafts[:kept], pick(left)]


@pytest.mark.parametrize("right", [solution, as_a_comparison_of_products, as_a_cumulative_product])
def test_every_right_rule_is_accepted_and_decides_for_the_model(right, capsys) -> None:
    rule = check.lesson_10(right)
    assert f"{right.__name__}() keeps its promises in all" in capsys.readouterr().out
    assert type(rule).__name__ == "YourRule"
    told = run(None, None).tokens.id.tolist()
    log = run(rule, Told(told))
    assert log.tokens.id.tolist() == told, "greedy: the very same text"
    drafts = log.steps.drafted_tokens.sum()
    assert 0 < log.steps.accepted_tokens.sum() < drafts
    assert len(log.steps) < 24


class Told:
    """Drafts a text that was told before, with every fourth token wrong."""

    def __init__(self, text):
        self.text = text

    def propose(self, request):
        said = len(request.tokens) - request.prompt_length
        return [0 if i % 4 == 3 else self.text[i] for i in range(said, len(self.text))][:4]


def run(rule, drafter):
    engine = Engine.load("bundled", EngineConfig(), drafter=drafter)
    engine.runner.verifier = rule
    engine.complete(
        ["Once upon a time"], SamplingParams(max_tokens=24, temperature=0), progress=False
    )
    return engine.log


def stub(p, q, drafts, uniforms, pick):
    """Which drafts are kept."""
    ...


def test_an_untouched_stub_is_not_written_yet_and_the_engine_keeps_its_own(capsys) -> None:
    assert check.lesson_10(stub) is None
    assert "not written yet" in capsys.readouterr().out


def test_cases_come_smallest_first() -> None:
    voices = [len(one.p) for one in cases() if isinstance(one, Voice)]
    drafts = [len(one.drafts) for one in cases() if not isinstance(one, Voice)]
    assert voices == sorted(voices) and drafts == sorted(drafts)
