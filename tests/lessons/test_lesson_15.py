"""Lesson 15's exercise: right masks are accepted and decide in the engine."""

import json

import numpy as np
import pytest

from checks import check
from checks.lesson_15 import YourEngine
from engine import Engine, EngineConfig, SamplingParams
from engine.core.sampling_params import StructuredOutput
from engine.models.loader import load
from solutions.lesson_15 import mask as solution

SHAPE = r'\{"animal": "(cat|dog|owl|fox|hen)", "legs": [0-8]\}'

OWN = Engine


def size(one):
    return len(one.vocab)


def with_an_array(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = np.zeros(len(vocab), dtype=bool)
    for index, token in enumerate(vocab):
        here = state
        for character in token:
            here = moves.get((here, character), "nowhere")
        allowed[index] = token and here != "nowhere"
    allowed[eos] = state in accepting
    if allowed.sum() == 0:
        raise ValueError
    return allowed


RIGHT = [solution, with_an_array]


@pytest.fixture(scope="module")
def bundled():
    return load("bundled")


def complete(engine, **params):
    prompt = engine.tokenizer.encode("Once upon a time")
    asked = SamplingParams(max_tokens=40, structured=StructuredOutput("regex", SHAPE), **params)
    return engine.complete([prompt], asked, progress=False)


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_mask_is_accepted_and_decides_in_the_engine(right, bundled) -> None:
    engine = check.lesson_15(right)
    assert issubclass(engine, YourEngine)
    runner, tokenizer = bundled
    answers = complete(engine(runner, EngineConfig(), tokenizer=tokenizer), temperature=0)
    assert json.loads(answers[0].text)["animal"] in {"cat", "dog", "owl", "fox", "hen"}
    assert answers[0].finish_reason == "stop"


def test_the_learners_masks_keep_the_shape_of_samples_with_drafts_and_preemptions(bundled) -> None:
    runner, tokenizer = bundled
    engine = type("Mine", (YourEngine,), {"mask": staticmethod(solution)})(
        runner, EngineConfig(max_kv_tokens=128, block_size=8), tokenizer=tokenizer
    )
    answers = complete(engine, temperature=1.5, seed=1, n=4)
    assert all(0 <= json.loads(one.text)["legs"] <= 8 for one in answers)


def test_the_engine_asks_the_learners_mask(bundled) -> None:
    def only_hens(fsm, state, vocab, eos):
        allowed = solution(fsm, state, vocab, eos)
        if sum(allowed) > 1 and "h" in vocab and allowed[vocab.index("h")]:
            return [token == "h" for token in vocab]
        return allowed

    runner, tokenizer = bundled
    engine = type("Hens", (YourEngine,), {"mask": staticmethod(only_hens)})(
        runner, EngineConfig(), tokenizer=tokenizer
    )
    answers = complete(engine, temperature=1, seed=5, n=4)
    assert {json.loads(one.text)["animal"] for one in answers} == {"hen"}
