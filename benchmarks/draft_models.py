"""Speculation with a draft model: acceptance, steps and speed for two drafters of the bundled model.

A draft model is worth its time if it is much cheaper than the target and agrees with it often. Both are
made here, because the project has only one model: a small one is trained on the bundled model's corpus
for a minute, and one is the bundled model without one of its six layers, which agrees often but costs
five sixths of the target. The tokens are always the same with and without drafts.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from benchmarks.pairs import compare
from benchmarks.report import MUTED, bars, panels, save
from benchmarks.workload import story_prompts
from engine import Engine, EngineConfig, SamplingParams
from engine.extensions.draft_model import DraftModel
from engine.models import loader
from engine.models.loader import BUNDLED
from engine.training.export import export
from engine.training.model import Model, ModelConfig
from engine.training.run import learning_rate, make_batch
from engine.training.tokenizer import IGNORED
from tests.engine.compute.pruned import save_without_layers
from visualizer import read

REQUESTS, TOKENS = 8, 48
PAIRS = 5
STEPS, ROWS, ROW_TOKENS = 200, 8, 256  # training: 0.4 million tokens
PEAK_LEARNING_RATE = 4e-3
SMALL = ModelConfig(
    hidden_size=96, intermediate_size=256, num_hidden_layers=1, num_attention_heads=3,
    num_key_value_heads=1,
)  # fmt: skip
# Batch size, temperature, drafts per step.
CONDITIONS = [(1, 0.0, 2), (1, 0.0, 4), (1, 0.8, 4), (8, 0.0, 4)]


def main() -> None:
    """Print acceptance, steps per token and the ratio of speeds for each draft model."""
    target, tokenizer = loader.load("bundled")
    prompts = story_prompts(tokenizer, REQUESTS, TOKENS)
    figures: dict[str, object] = {}
    steps: dict[str, float] = {}
    speeds: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        for name, directory in _draft_models(Path(folder)).items():
            draft = loader.load_draft_model(directory, target, tokenizer)
            share = draft.describe()["parameters"] / target.describe()["parameters"]
            print(f"{name}: {share:.0%} of the target's parameters")
            for batch, temperature, length in CONDITIONS:
                config = EngineConfig(token_budget=256, max_batch_size=batch, max_kv_tokens=2048)
                params = [
                    SamplingParams(
                        max_tokens=TOKENS, ignore_eos=True, temperature=temperature, seed=seed
                    )
                    for seed in range(REQUESTS)
                ]

                def serve(length: int) -> tuple[Engine, list[list[int]]]:
                    drafter = DraftModel(draft, length) if length else None  # noqa: B023
                    engine = Engine(target, config, tokenizer=tokenizer, drafter=drafter)  # noqa: B023
                    done = engine.complete(prompts, params, progress=False)  # noqa: B023
                    return engine, [one.token_ids for one in done]

                (drafted, same), (plain, tokens) = serve(length), serve(0)
                assert same == tokens, "drafts changed a token"
                count = sum(map(len, tokens))
                table = read(drafted.log).steps
                accepted = table.accepted_tokens.sum() / table.drafted_tokens.sum()
                time = table.drafting_ms.sum() / table.duration_ms.sum()
                label = f"{name}, {length} drafts, batch {batch}, temperature {temperature}"
                ratio = compare(label, lambda: serve(length), lambda: serve(0), PAIRS)  # noqa: B023
                steps[label] = drafted.step_count / plain.step_count
                speeds[label] = ratio.quartiles[1]
                figures[label] = {
                    "acceptance": accepted,
                    "share_of_time_drafting": time,
                    "steps_per_token": [drafted.step_count / count, plain.step_count / count],
                    "throughput_with_over_without": ratio.figures(),
                }
                print(
                    f"  {length} drafts, batch {batch}, temperature {temperature}: {count} tokens, all "
                    f"equal; {accepted:.0%} of drafts accepted, "
                    f"{drafted.step_count / count:.3f} steps per token with drafts, "
                    f"{plain.step_count / count:.3f} without; drafting takes {time:.0%} of the "
                    f"time; throughput with over without {ratio}",
                    flush=True,
                )
    plot, columns = panels(
        ["Steps, with drafts over without", "Tokens/s, with drafts over without"], ""
    )
    for axes, values in zip(columns, (steps, speeds), strict=True):
        bars(axes, values, digits=2, ours=len(values))
        axes.axvline(1, color=MUTED, linewidth=1, zorder=0)
    save("draft_models", figures, plot)


def _draft_models(folder: Path) -> dict[str, Path]:
    """Make the draft models; return their directories by name."""
    _train(folder / "small")
    save_without_layers(folder / "pruned", [3])
    return {"1 layer of 96": folder / "small", "5 of 6 layers": folder / "pruned"}


def _train(directory: Path) -> None:
    """Train a small model with the bundled tokenizer on the bundled model's corpus, in float32."""
    torch.manual_seed(0)
    model = Model(SMALL)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.0)
    tokenizer = Tokenizer.from_file(str(BUNDLED / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    for step in range(STEPS):
        tokens, targets, mask = make_batch(tokenizer, 1, step, ROWS, ROW_TOKENS)
        logits = model(tokens, mask).flatten(0, 1)
        loss = functional.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED)
        loss.backward()
        optimizer.param_groups[0]["lr"] = PEAK_LEARNING_RATE * learning_rate(step, STEPS)
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"training step {step} of {STEPS}, loss {loss:.2f}", flush=True)
    export(model, tokenizer, directory)


if __name__ == "__main__":
    main()
