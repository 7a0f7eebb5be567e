"""The committed model: it loads, it does what its card says, and the card says what was counted."""

import json

import pytest
import torch

from engine import Engine
from engine.compute.loader import BUNDLED as DIRECTORY
from engine.training import evaluate, serving
from tests.lazy import transformers


@pytest.fixture(scope="module")
def bundled():
    return Engine.load(DIRECTORY, evaluate.ENGINE)


@pytest.fixture(scope="module")
def recorded():
    return json.loads((DIRECTORY / "evaluation.json").read_text())


def test_it_is_small():
    assert sum(file.stat().st_size for file in DIRECTORY.rglob("*.*")) < 10_000_000


def test_a_raw_completion_tells_a_story_and_stops():
    tokenizer = transformers.AutoTokenizer.from_pretrained(DIRECTORY)
    model = transformers.AutoModelForCausalLM.from_pretrained(DIRECTORY, dtype=torch.float32)
    prompt = tokenizer("Once upon a time", return_tensors="pt")
    row = model.generate(**prompt, max_new_tokens=400)[0]
    assert row[-1] == tokenizer.eos_token_id
    story = tokenizer.decode(row, skip_special_tokens=True)
    assert story.startswith("Once upon a time")
    assert len(story.split()) > 50
    assert evaluate.names_are_consistent(story)


def test_it_answers_sums_and_letter_counts_through_the_calculator(bundled):
    turns = [*evaluate.held_out_sums(8), *evaluate.held_out_letters(4)]
    judges = [evaluate.sum_is_right] * 8 + [evaluate.count_is_right] * 4
    answers = evaluate.answers(bundled, [turn.question for turn in turns])
    right = [judge(*pair) for judge, *pair in zip(judges, turns, answers, strict=True)]
    assert sum(right) >= 11, answers


def test_it_explains_what_it_serves(bundled):
    names = ["the KV cache", "prefill", "continuous batching"]
    answers = evaluate.answers(bundled, [f"What is {name}?" for name in names])
    for name, answer in zip(names, answers, strict=True):
        assert answer == serving.BY_NAME[name]["what"]


@pytest.mark.parametrize(
    ("measured", "least"),
    [
        ("sums, held-out operands and sentences", 0.99),
        ("letter counts, held-out sentences", 0.95),
    ],
)
def test_the_goals_are_met(recorded, measured, least):
    assert recorded[measured]["correct"] >= least * recorded[measured]["total"]


def test_the_card_says_what_was_counted(recorded):
    card = (DIRECTORY / "README.md").read_text()
    for name, result in recorded.items():
        assert f"| {name} | {result['correct']} of {result['total']} |" in card
        assert len(result["missed"]) == result["total"] - result["correct"]
