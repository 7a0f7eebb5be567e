"""Lesson 10's exercise: right acceptance rules are accepted and run in the engine."""

import numpy as np
import pytest

from checks import check
from checks.judging import judge
from checks.lesson_10 import OneDraft, attempt, cases
from engine import Engine, EngineConfig, SamplingParams
from solutions.lesson_10 import accept as solution
from tests.lessons.wrong.lesson_10 import (
    draws_from_the_model_again,
    keeps_what_the_model_likes_at_least_as_much,
    upside_down,
)


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
        if isinstance(one, OneDraft) and (one.p, one.q) == ((0.5, 0.3, 0.2), (0.2, 0.6, 0.2))
    ]
    message = " ".join(str(judge(wrong, [own], attempt)).split())
    assert first in message
    assert "cat 50%, dog 30% and owl 20%" in message


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


def one_draft_after_another(p, q, drafts, uniforms, pick):
    """Recursion: judge the first draft, and then the rest of them."""
    if not drafts:
        return [pick(p[0])]
    draft = drafts[0]
    if uniforms[0] < min(1, p[0][draft] / q[0][draft]):
        return [draft, *one_draft_after_another(p[1:], q[1:], drafts[1:], uniforms[1:], pick)]
    return [pick([max(m - d, 0) for m, d in zip(p[0], q[0], strict=True)])]


def as_a_tuple_with_numpy(p, q, drafts, uniforms, pick):
    kept = ()
    while len(kept) < len(drafts):
        model, drafter = np.array(p[len(kept)]), np.array(q[len(kept)])
        draft = drafts[len(kept)]
        if uniforms[len(kept)] * drafter[draft] >= model[draft]:
            left = np.maximum(model - drafter, 0)
            return (*kept, pick(left / left.sum()))
        kept += (draft,)
    return (*kept, pick(np.array(p[len(kept)])))


def recursive(p, q, drafts, uniforms, pick):
    if not drafts:
        return [pick(p[0])]
    chance = p[0][drafts[0]] / q[0][drafts[0]]
    if uniforms[0] < chance:
        return [drafts[0], *recursive(p[1:], q[1:], drafts[1:], uniforms[1:], pick)]
    return [pick([max(0, a - b) for a, b in zip(p[0], q[0], strict=True)])]


def while_with_a_flag(p, q, drafts, uniforms, pick):
    answer, j, going = [], 0, True
    while going and j < len(drafts):
        word = drafts[j]
        model, other = p[j][word], q[j][word]
        if other * uniforms[j] < model:
            answer += [word]
            j += 1
        else:
            going = False
    if going:
        answer += [pick(p[j])]
    else:
        weights = []
        for a, b in zip(p[j], q[j], strict=True):
            weights.append(a - b if a > b else 0.0)
        answer += [pick(weights)]
    return answer


def first_rejection_by_next(p, q, drafts, uniforms, pick):
    def rejected(j):
        return not uniforms[j] < min(1, p[j][drafts[j]] / q[j][drafts[j]])

    n = next((j for j in range(len(drafts)) if rejected(j)), len(drafts))
    if n == len(drafts):
        weights = p[n]
    else:
        total = sum(max(0.0, a - b) for a, b in zip(p[n], q[n], strict=True))
        weights = [max(0.0, a - b) / total for a, b in zip(p[n], q[n], strict=True)]
    return [*list(drafts[:n]), pick(weights)]


RIGHT = [
    solution,
    as_a_comparison_of_products,
    as_a_cumulative_product,
    one_draft_after_another,
    as_a_tuple_with_numpy,
    recursive,
    while_with_a_flag,
    first_rejection_by_next,
]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_rule_is_accepted_and_decides_for_the_model(right, capsys) -> None:
    rule = check.lesson_10(right)
    assert f"{right.__name__}() keeps its promises in all" in capsys.readouterr().out
    assert type(rule).__name__ == "YourRule"
    told = run(None, None).tokens.id.tolist()
    log = run(rule, Told(told))
    assert log.tokens.id.tolist() == told, "greedy: the same text"
    drafts = log.steps.drafted_tokens.sum()
    assert 0 < log.steps.accepted_tokens.sum() < drafts
    assert len(log.steps) < 24


class Told:
    """Drafts a text from an earlier run, with every fourth token wrong."""

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


def test_an_untouched_stub_counts_as_unwritten_and_the_engine_keeps_its_own(capsys) -> None:
    assert check.lesson_10(stub) is None
    assert "not written yet" in capsys.readouterr().out


def test_cases_come_smallest_first() -> None:
    voices = [len(one.p) for one in cases() if isinstance(one, OneDraft)]
    drafts = [len(one.drafts) for one in cases() if not isinstance(one, OneDraft)]
    assert voices == sorted(voices) and drafts == sorted(drafts)
