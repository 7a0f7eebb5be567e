"""Lesson 14's exercise: right acceptance rules are accepted and run in the engine."""

import numpy as np
import pytest

from checks import check
from checks.judging import judge
from checks.lesson_14 import OneDraft, attempt, cases
from engine import Engine, EngineConfig, EventLog, SamplingParams
from engine.core.log.vocabulary import RequestArrived
from solutions.lesson_14 import accept as solution
from solutions.wrong import ROWS, made
from tests.engine.drafters import Knowing
from visualizer import read

OWN = None


def size(one):
    return len(one.p) if hasattr(one, "after") else 9 + len(one.drafts)


@pytest.mark.parametrize(
    ("wrong", "first"),
    [
        ("draws_from_the_model_again", "cat 35%, dog 39% and owl 26%"),
        ("keeps_what_the_model_likes_at_least_as_much", "cat 80%, dog 0% and owl 20%"),
        ("upside_down", "cat 20%, dog 60% and owl 20%"),
    ],
)
def test_the_lessons_own_example_shows_both_distributions(wrong, first) -> None:
    part = made("lesson_14", wrong, ROWS["lesson_14", wrong].changes)
    [own] = [
        one
        for one in cases()
        if isinstance(one, OneDraft) and (one.p, one.q) == ((0.5, 0.3, 0.2), (0.2, 0.6, 0.2))
    ]
    message = " ".join(str(judge(part, [own], attempt)).split())
    assert first in message
    assert "cat 50%, dog 30% and owl 20%" in message


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


RIGHT = [solution, as_a_tuple_with_numpy]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_rule_is_accepted_and_decides_for_the_model(right) -> None:
    rule = check.lesson_14(right)
    assert type(rule).__name__ == "YourRule"
    plain = run(None, [])
    told = read(plain).tokens.id.tolist()
    log = run(rule, [plain.of(RequestArrived)[0].prompt + told])
    assert read(log).tokens.id.tolist() == told, "greedy: the same text"
    drafts = read(log).steps.drafted_tokens.sum()
    assert 0 < read(log).steps.accepted_tokens.sum() < drafts
    assert len(read(log).steps) < 24


def run(rule, texts) -> EventLog:
    """Drafts come from the texts, with every fourth token wrong."""
    drafter = Knowing(texts, wrong=lambda position: position % 4 == 3)
    engine = Engine.load("bundled", EngineConfig(), drafter=drafter)
    engine.runner.verifier = rule
    engine.complete(
        ["Once upon a time"], SamplingParams(max_tokens=24, temperature=0), progress=False
    )
    return engine.log
