"""Every family in every situation says what transformers says; see `parity.py`.

Rows that differ in how attention, layers or weights are computed have the whole table. The others have
the situations together in one run; `make soak` runs the rest of the table.
"""

import pytest

from engine.speculation import verification
from tests.engine.compute.parity import COLUMNS, ROWS, TIE, TOGETHER, fill

PROMPTS, OUTPUT = 6, 12
# One of each: layer norm, grouped heads, windows, two rotations, experts, half precision, int8.
WHOLE = {"gpt2", "qwen3", "mistral", "gemma3", "qwen3-moe", "phi4-long, fp16", "gguf qwen3, Q4_K_M"}
CELLS = [
    pytest.param(
        row, column, marks=[] if row in WHOLE or column == "together" else pytest.mark.soak
    )
    for row in ROWS
    for column in (*COLUMNS, "together")
]


@pytest.mark.parametrize(("row", "column"), CELLS)
def test_greedy_tokens_are_those_of_transformers(subject, row, column):
    situation = COLUMNS.get(column, TOGETHER)
    cell = fill(subject(row), situation, PROMPTS, OUTPUT)
    print(f"\n{row}, {column}: {cell}")
    assert cell.happened >= 3, f"too few {situation.says}"
    assert cell.tokens == PROMPTS * OUTPUT
    assert len(cell.said) >= 5, "a model that says one thing tests nothing"
    assert cell.wrong == 0
    assert cell.unlike <= 1, "the log-probabilities are others"


def test_the_judge_notices_drafts_that_are_accepted_unseen(subject, monkeypatch):
    monkeypatch.setattr(verification, "count_accepted", lambda drafts, chosen: len(drafts))
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
