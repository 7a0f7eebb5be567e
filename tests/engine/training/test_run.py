"""Training lowers the loss, and an interrupted run ends as if it had never stopped."""

import json

import pytest
import torch
from safetensors.torch import load_file

from engine.training import run
from engine.training.model import ModelConfig
from tests.facts import raises_naming

TINY = ModelConfig(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
)
STEPS = 8


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(run, "TOKENIZER_DOCUMENTS", 1500)
    monkeypatch.setattr(run, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(run, "PEAK_LEARNING_RATE", 1e-2)  # eight steps have to show something


def train(tmp_path, monkeypatch, stop_at=None):
    """Train a tiny model; returns the losses of this call. Stops by an interrupt at a step."""
    losses = []
    real = run.train_step

    def watched(*args):
        if len(losses) == stop_at:
            raise KeyboardInterrupt
        losses.append(real(*args))
        return losses[-1]

    with monkeypatch.context() as patch:
        patch.setattr(run, "train_step", watched)
        run.train(
            tmp_path / "out",
            tokens=STEPS * run.TOKENS_PER_STEP,
            device="cpu",
            checkpoint=tmp_path / "checkpoint.pt",
            config=TINY,
            measure=False,
        )
    return losses


def test_the_loss_falls_and_a_resumed_run_ends_the_same(tmp_path, monkeypatch):
    whole = train(tmp_path / "whole", monkeypatch)
    assert len(whole) == STEPS
    assert whole[-1] < whole[0] - 0.5

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "parts", monkeypatch, stop_at=3)
    assert train(tmp_path / "parts", monkeypatch) == whole[3:]

    one, other = (load_file(tmp_path / d / "out/model.safetensors") for d in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    made = json.loads((tmp_path / "parts/out/training.json").read_text())
    assert made["tokens"] == STEPS * run.TOKENS_PER_STEP


def test_a_checkpoint_of_another_run_is_refused(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, monkeypatch, stop_at=1)
    with raises_naming(ValueError, tmp_path / "checkpoint.pt"):
        run.train(tmp_path / "out", tokens=5000, checkpoint=tmp_path / "checkpoint.pt", config=TINY)


def test_the_learning_rate_rises_then_falls_to_nothing():
    rates = [run.learning_rate(step, 1000) for step in range(1000)]
    assert rates.index(max(rates)) in (99, 100)
    assert max(rates) == 1.0
    assert 0 <= rates[-1] < 1e-4
    assert rates[100:] == sorted(rates[100:], reverse=True)
