"""Training: the loop that makes the bundled model out of its corpus.

One epoch over an endless corpus, next-token prediction, one cosine. Rows are 256 tokens long for
most of the run, because attention over short rows is cheap, and 512 at its end, where the model
learns to use a longer context; large models extend their context in the same way.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from engine.training.batches import Batch, make_batch
from engine.training.corpus import texts
from engine.training.evaluate import evaluate
from engine.training.export import export
from engine.training.model import Model, ModelConfig
from engine.training.tokenizer import IGNORED, train_tokenizer

TOKENS_PER_STEP = 4096
SHORT_ROWS, LONG_ROWS = 256, 512
SHORT_SHARE = 0.75
TOKENIZER_DOCUMENTS = 30_000
PEAK_LEARNING_RATE = 2e-3
WARMUP_STEPS = 100
CHECKPOINT_SECONDS = 60.0


def train(
    out_dir: Path,
    *,
    tokens: int = 12_000_000,
    seed: int = 0,
    device: str = "auto",
    checkpoint: Path = Path("build/training/checkpoint.pt"),
    config: ModelConfig | None = None,
    measure: bool = True,
) -> None:
    """Train a model on ``tokens`` tokens and write it to ``out_dir`` as a Hugging Face directory.

    With ``measure`` the model is then evaluated, which takes a few minutes, and the directory
    gets its model card.

    ``device`` is a torch device, or "auto" for a GPU where there is one. Every minute the state
    is saved to ``checkpoint``; a call with the same ``seed`` and ``tokens`` goes on from there,
    and on the same machine ends with the model that an uninterrupted run would have made.

    Raises ValueError where ``tokens`` is less than one step, or where the checkpoint belongs to
    another run.
    """
    steps = tokens // TOKENS_PER_STEP
    if steps < 1:
        raise ValueError(f"tokens is {tokens}, but one step takes {TOKENS_PER_STEP}; ask for more")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    model = Model(config or ModelConfig()).to(device)
    optimizers = make_optimizers(model)
    run = {"seed": seed, "steps": steps}
    first, earlier, tokenizer = 0, 0.0, None
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        if saved["run"] != run:
            raise ValueError(
                f"checkpoint {checkpoint} belongs to a run with {saved['run']}, this one has {run}; "
                "delete the file or ask for the same run"
            )
        model.load_state_dict(saved["model"])
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        first, earlier = saved["step"], saved["seconds"]
        tokenizer = Tokenizer.from_str(saved["tokenizer"])
    if tokenizer is None:
        tokenizer = train_tokenizer(texts(seed, TOKENIZER_DOCUMENTS))

    def save(step: int) -> None:
        state = {
            "run": run,
            "step": step,
            "seconds": earlier + time.monotonic() - started,
            "model": model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "tokenizer": tokenizer.to_str(),
        }
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        partial = checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, checkpoint)  # noqa: PTH105 - atomic, so a kill leaves the old file

    forward = compiled(model)
    started = saved_at = time.monotonic()
    with tqdm(total=steps * TOKENS_PER_STEP, initial=first * TOKENS_PER_STEP, unit="tok",
              unit_scale=True, desc="training") as bar:  # fmt: skip
        for step in range(first, steps):
            length = SHORT_ROWS if step < steps * SHORT_SHARE else LONG_ROWS
            batch = make_batch(tokenizer, seed, step, TOKENS_PER_STEP // length, length)
            loss = train_step(forward, optimizers, batch, learning_rate(step, steps), device)
            bar.update(TOKENS_PER_STEP)
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            if time.monotonic() - saved_at > CHECKPOINT_SECONDS:
                save(step + 1)
                saved_at = time.monotonic()
    save(steps)
    minutes = (earlier + time.monotonic() - started) / 60
    export(model, tokenizer, out_dir)
    made: dict[str, object] = {
        "seed": seed,
        "tokens": steps * TOKENS_PER_STEP,
        "minutes": round(minutes),
    }
    made |= {"device": device_name(device), "schedule": "one epoch, one cosine"}
    (out_dir / "training.json").write_text(json.dumps(made, indent=2) + "\n")
    if measure:
        evaluate(out_dir)


def device_name(device: str) -> str:
    """What the model card says it was trained on."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{threads} CPU thread{'' if threads == 1 else 's'}"


def learning_rate(step: int, steps: int) -> float:
    """The share of the peak rate at ``step``: a linear warm-up, then half a cosine to zero."""
    warmup = min(WARMUP_STEPS, steps // 10)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 + 0.5 * math.cos(math.pi * (step - warmup) / (steps - warmup))


def make_optimizers(model: Model) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW (arXiv:1711.05101) for embedding and norms.

    Muon (Keller Jordan, 2024) makes the update of a matrix orthogonal, so that rare directions
    learn as fast as common ones. It costs a seventh of the speed here and needs far fewer tokens.
    """
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(
            matrices, lr=PEAK_LEARNING_RATE, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(
            others, lr=PEAK_LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        ),
    ]


def compiled(model: Model) -> Callable[[Tensor, Tensor], Tensor]:
    """The model through ``torch.compile`` where a C++ compiler is at hand, half as slow again."""
    return torch.compile(model, dynamic=False) if shutil.which("g++") else model


def train_step(
    forward: Callable[[Tensor, Tensor], Tensor],
    optimizers: list[torch.optim.Optimizer],
    batch: Batch,
    rate: float,
    device: str,
) -> float:
    """One forward pass, one backward pass, one update; returns the loss in nats per token."""
    tokens, targets, mask = (tensor.to(device) for tensor in batch)
    # bf16 for the matrix products; the weights and their updates stay in fp32.
    with torch.autocast(torch.device(device).type, torch.bfloat16):
        logits = forward(tokens, mask)
    loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    loss.backward()  # type: ignore[no-untyped-call]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            nn.utils.clip_grad_norm_(group["params"], 1.0)
            group.setdefault("peak", group["lr"])
            group["lr"] = group["peak"] * rate
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())
