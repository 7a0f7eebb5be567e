"""Every family in every situation says what transformers says; see `parity.py`."""

import functools

import pytest

from engine.compute import torch_runner
from tests.engine.compute.parity import COLUMNS, ROWS, TIE, fill

PROMPTS, OUTPUT = 6, 12


@pytest.fixture(scope="session")
def subject(tmp_path_factory):
    """Name of a row -> its Subject, made on first use."""
    return functools.cache(lambda name: ROWS[name](tmp_path_factory.mktemp("parity")))


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("row", ROWS)
def test_greedy_tokens_are_those_of_transformers(subject, row, column):
    cell = fill(subject(row), COLUMNS[column], PROMPTS, OUTPUT)
    print(f"\n{row}, {column}: {cell}")
    assert cell.happened >= 3, f"too few {COLUMNS[column].says}"
    assert cell.tokens == PROMPTS * OUTPUT
    assert len(cell.said) >= 5, "a model that says one thing tests nothing"
    assert cell.wrong == 0
    assert cell.unlike <= 1, "the log-probabilities are others"


def test_the_judge_notices_drafts_that_are_accepted_unseen(subject, monkeypatch):
    monkeypatch.setattr(torch_runner, "count_accepted", lambda drafts, chosen: len(drafts))
    assert fill(subject("qwen3"), COLUMNS["speculative"], PROMPTS, OUTPUT).wrong > 0


def test_the_judge_notices_a_window_that_is_left_out(subject, monkeypatch):
    mistral = subject("mistral")
    monkeypatch.setattr(mistral.judge.config, "sliding_window", None)
    for column in COLUMNS.values():
        assert fill(mistral, column, PROMPTS, OUTPUT).wrong > 0


def test_the_judge_notices_a_precision_that_is_not_what_it_says(subject, monkeypatch):
    bf16 = subject("llama-llama3, bf16")
    monkeypatch.setattr(bf16, "tie", lambda logits: TIE)
    assert fill(bf16, COLUMNS["alone"], PROMPTS, OUTPUT).unlike > 1
