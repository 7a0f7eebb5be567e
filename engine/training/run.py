"""Training: the loop that trains the bundled model on its corpus.

The model predicts the next token, for one epoch over an endless corpus with one cosine schedule. Rows
are 256 tokens long for most of the run, because attention over short rows is cheap. Later they are 512
and then 1024 tokens long, so that the model learns to use a longer context. Large models extend their
context in the same way.

The loop is not compiled: `torch.compile` was measured a tenth slower than this on a CPU (bf16, one
thread), after half a minute of compiling.
"""

import json
import math
import time
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from engine.training.corpus import documents, texts
from engine.training.evaluate import evaluate
from engine.training.export import export
from engine.training.model import Model, ModelConfig
from engine.training.tokenizer import IGNORED, encode_document, train_tokenizer

TOKENS_PER_STEP = 4096
# Lengths of rows, and the share of the run at which each one ends.
ROWS = {256: 0.6, 512: 0.9, 1024: 1.0}
TOKENIZER_DOCUMENTS = 30_000
PEAK_LEARNING_RATE = 2e-3
WARMUP_STEPS = 100
CHECKPOINT_SECONDS = 60.0
# A batch counts as full after this many documents that did not fit in any row.
PATIENCE = 24


def train(
    out_dir: Path,
    *,
    tokens: int = 18_000_000,
    seed: int = 0,
    device: str = "auto",
    checkpoint: Path = Path("build/training/checkpoint.pt"),
    config: ModelConfig | None = None,
    measure: bool = True,
) -> None:
    """Train a model on ``tokens`` tokens and write it to ``out_dir`` as a Hugging Face directory.

    device      a torch device, or "auto" for a GPU if there is one
    checkpoint  the training state, saved every minute; a call with the same ``seed`` and ``tokens``
                continues from it and, on the same machine, ends with the model of an uninterrupted run
    measure     evaluate the model afterwards and write its model card, which takes a few minutes

    Raises ValueError if ``tokens`` is less than one step, if torch cannot use the device, or if the
    checkpoint belongs to another run.
    """
    steps = tokens // TOKENS_PER_STEP
    if steps < 1:
        raise ValueError(f"tokens must be at least {TOKENS_PER_STEP}, one step, got {tokens}")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(
            f"device must be auto, cpu or a GPU that torch can use here, got {device!r}: {reason}"
        ) from error
    torch.manual_seed(seed)
    training = _Training(Model(config or ModelConfig()).to(device), seed, steps)
    if checkpoint.exists():
        training.resume(checkpoint, device)
    else:
        print(f"making the tokenizer from {TOKENIZER_DOCUMENTS:,} documents", flush=True)
        training.tokenizer = train_tokenizer(texts(seed, TOKENIZER_DOCUMENTS))
    saved_at = time.monotonic()
    with tqdm(total=steps * TOKENS_PER_STEP, initial=training.step * TOKENS_PER_STEP, unit="tok",
              unit_scale=True, desc="training") as bar:  # fmt: skip
        for step in range(training.step, steps):
            length = next(length for length, end in ROWS.items() if step < steps * end)
            batch = make_batch(training.tokenizer, seed, step, TOKENS_PER_STEP // length, length)
            rate = learning_rate(step, steps)
            loss = train_step(training.model, training.optimizers, batch, rate, device)
            training.step = step + 1
            bar.update(TOKENS_PER_STEP)
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            if time.monotonic() - saved_at > CHECKPOINT_SECONDS:
                training.save(checkpoint)
                saved_at = time.monotonic()
    training.save(checkpoint)
    export(training.model, training.tokenizer, out_dir)
    facts = {
        "seed": seed,
        "tokens": steps * TOKENS_PER_STEP,
        "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
        "minutes": round(training.seconds() / 60),
        "device": device_name(device),
        "schedule": "one epoch, one cosine",
    }
    (out_dir / "training.json").write_text(json.dumps(facts, indent=2) + "\n")
    if measure:
        evaluate(out_dir)


class _Training:
    """The state of a training run: model, optimizers, tokenizer, steps and time so far."""

    tokenizer: Tokenizer

    def __init__(self, model: Model, seed: int, steps: int) -> None:
        self.model = model
        self.optimizers = make_optimizers(model)
        self.step = 0
        self._run = {"seed": seed, "steps": steps}
        self._started = time.monotonic()

    def seconds(self) -> float:
        """Return the time spent on this run, including earlier calls."""
        return time.monotonic() - self._started

    def save(self, checkpoint: Path) -> None:
        """Write the state, atomically, so that an interruption leaves the old file intact."""
        state = {
            "run": self._run,
            "step": self.step,
            "seconds": self.seconds(),
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "tokenizer": self.tokenizer.to_str(),
        }
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        partial = checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(checkpoint)

    def resume(self, checkpoint: Path, device: str) -> None:
        """Read the state. Raises ValueError if it belongs to another run."""
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        if saved["run"] != self._run:
            raise ValueError(
                f"checkpoint {checkpoint} belongs to a run with {saved['run']}, but this one has "
                f"{self._run}: delete the file or ask for the same run"
            )
        self.model.load_state_dict(saved["model"])
        for optimizer, state in zip(self.optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self.step = saved["step"]
        self.tokenizer = Tokenizer.from_str(saved["tokenizer"])
        self._started -= saved["seconds"]


class Batch(NamedTuple):
    """``tokens`` and ``targets`` ``[rows, length]``; ``mask`` ``[rows, 1, length, length]``."""

    tokens: Tensor
    targets: Tensor
    mask: Tensor


def make_batch(tokenizer: Tokenizer, seed: int, number: int, rows: int, length: int) -> Batch:
    """Make batch ``number`` of a training run; documents longer than a row are skipped.

    Each row holds several short documents, and the mask hides every document from its neighbours.
    The batch depends only on ``seed`` and ``number``, so a resumed training run sees the batches
    that an uninterrupted one would have seen.
    """
    tokens = torch.zeros(rows, length, dtype=torch.long)
    targets = torch.full((rows, length), IGNORED, dtype=torch.long)
    owner = torch.full((rows, length), -1, dtype=torch.long)
    used = [0] * rows
    misses = 0
    for index, document in enumerate(documents(f"{seed}/{number}")):
        ids, next_ids = encode_document(tokenizer, document)
        row = next((r for r in range(rows) if used[r] + len(ids) <= length), None)
        if row is None:
            misses += 1
            if misses == PATIENCE:
                break
            continue
        span = slice(used[row], used[row] + len(ids))
        tokens[row, span] = torch.tensor(ids)
        targets[row, span] = torch.tensor(next_ids)
        owner[row, span] = index
        used[row] += len(ids)
    same_document = owner[:, :, None] == owner[:, None, :]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    return Batch(tokens, targets, (same_document & causal)[:, None])


def device_name(device: str) -> str:
    """Return the name of the device for the model card."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{threads} CPU thread{'' if threads == 1 else 's'}"


def learning_rate(step: int, steps: int) -> float:
    """Return the share of the peak rate at ``step``: linear warm-up, then half a cosine to zero."""
    warmup = min(WARMUP_STEPS, steps // 10)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 + 0.5 * math.cos(math.pi * (step - warmup) / (steps - warmup))


def make_optimizers(model: Model) -> list[torch.optim.Optimizer]:
    """Make Muon for the layers' matrices, and AdamW (arXiv:1711.05101) for embedding and norms.

    Muon (Keller Jordan, 2024) makes the update of a matrix orthogonal, so that rare directions
    learn as fast as common ones. A step is a seventh slower here, but far fewer tokens are needed.
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


def train_step(
    model: Model,
    optimizers: list[torch.optim.Optimizer],
    batch: Batch,
    rate: float,
    device: str,
) -> float:
    """Run one forward pass, one backward pass and one update; return the loss in nats per token."""
    tokens, targets, mask = (tensor.to(device) for tensor in batch)
    # bf16 for the matrix products; the weights and their updates stay in fp32.
    with torch.autocast(torch.device(device).type, torch.bfloat16):
        logits = model(tokens, mask)
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
