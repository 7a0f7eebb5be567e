"""Compare the engine with a bare loop: the share of time that serving leaves for the model.

Both are the bundled model in float32, greedy, in turns in one process. The headline is a realistic
run: prompts of 64 tokens, 128 output tokens each, everything included from submission to text. Two more
rows decode only, around a short and around a long context.
"""

import os
from functools import partial
from typing import Any

import torch

from benchmarks import report
from benchmarks.bare_loop import BareLoop
from benchmarks.pairs import Ratio, in_turns, ratio
from benchmarks.workload import story_prompts
from engine import Engine, EngineConfig, SamplingParams
from engine.models import loader
from engine.models.text.hf_tokenizer import HFTokenizer

BATCHES = {1: 0.65, 8: 0.75, 32: 0.75}  # batch size -> the ratio to reach
PROMPT, OUTPUT = 64, 128
CONTEXTS = (64, 448)
ROUNDS_OF_RUNS = {1: 31, 8: 17, 32: 9}
ROUNDS, STEPS = 16, 4  # for each context: steps of both in turns, four at a time


class Served:
    """The engine's side: a loaded model, and a fresh engine for each run."""

    def __init__(self, batch: int, prompt: int, output: int) -> None:
        # All prompts are computed in one step, as the bare loop does it.
        self.config = EngineConfig(
            token_budget=batch * prompt,
            max_batch_size=batch,
            max_kv_tokens=batch * (prompt + output + 16),
        )
        self.runner, self.tokenizer = loader.load("bundled")
        self.params = SamplingParams(max_tokens=output, temperature=0, ignore_eos=True)

    def engine(self) -> Engine:
        """Make an engine with an empty cache and an empty log."""
        return Engine(self.runner, self.config, tokenizer=self.tokenizer)

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        """Serve all prompts; return their output tokens."""
        done = self.engine().complete(prompts, self.params, progress=False)
        return [one.token_ids for one in done]


def whole_runs(tokenizer: HFTokenizer, batch: int) -> tuple[Ratio, dict[str, float]]:
    """Ratio and tokens per second of whole runs. Raises unless both choose the same tokens."""
    served, bare = Served(batch, PROMPT, OUTPUT), BareLoop(batch, PROMPT + OUTPUT)
    prompts = story_prompts(tokenizer, batch, PROMPT)
    if served.run(prompts) != bare.generate(prompts, OUTPUT):
        raise AssertionError("the engine and the bare loop chose different tokens")
    works = {
        "engine": partial(served.run, prompts),
        "bare loop": partial(bare.generate, prompts, OUTPUT),
    }
    seconds = in_turns(f"batch {batch}", works, rounds=ROUNDS_OF_RUNS[batch])
    return _result(seconds, batch * OUTPUT)


def decoding(tokenizer: HFTokenizer, batch: int, context: int) -> tuple[Ratio, dict[str, float]]:
    """Measure the same for decode steps alone, around a context of `context` tokens."""
    steps = (ROUNDS + 1) * STEPS
    prompt = context - steps // 2
    served, bare = Served(batch, prompt, steps + 2), BareLoop(batch, prompt + steps + 2)
    prompts = story_prompts(tokenizer, batch, prompt)
    engine = served.engine()
    requests = [engine.submit(tokens, served.params) for tokens in prompts]
    engine.step()
    chosen = [bare.start(prompts)]

    def serve() -> None:
        for _ in range(STEPS):
            engine.step()

    def loop() -> None:
        for _ in range(STEPS):
            chosen.append(bare.decode(chosen[-1]))

    serve(), loop()  # both warm
    seconds = in_turns(
        f"batch {batch}, context {context}", {"engine": serve, "bare loop": loop}, ROUNDS
    )
    if [request.output_ids for request in requests] != torch.stack(chosen, dim=1).tolist():
        raise AssertionError("the engine and the bare loop chose different tokens")
    return _result(seconds, batch * STEPS)


def _result(seconds: dict[str, list[float]], tokens: int) -> tuple[Ratio, dict[str, float]]:
    speeds = {name: tokens / sorted(each)[len(each) // 2] for name, each in seconds.items()}
    return ratio(seconds["engine"], seconds["bare loop"]), speeds


def main() -> None:
    """Print a line for each batch size and kind of work; save them and a plot."""
    tokenizer = Served(1, PROMPT, OUTPUT).tokenizer
    print(
        f"float32, {torch.get_num_threads()} thread, greedy, tokens equal\n"
        f"engine: continuous batching, pages of {EngineConfig().block_size} tokens, prefix cache, "
        "event log, text, log-probabilities\n"
        "bare loop: one batch of equal lengths, contiguous cache made beforehand, ids only\n"
        f"load of the machine before: {os.getloadavg()[0]:.1f}\n"
    )
    figures: dict[str, Any] = {}
    plot, axes = report.panels([f"batch {batch}" for batch in BATCHES], "output tokens per second")
    print(f"{'batch':>5}  {'work':<28} {'engine':>9} {'bare loop':>9}  engine over bare loop, aim")
    for (batch, aim), chart in zip(BATCHES.items(), axes, strict=True):
        works = {f"prompt {PROMPT}, output {OUTPUT}": whole_runs(tokenizer, batch)}
        for context in CONTEXTS:
            works[f"decode around context {context}"] = decoding(tokenizer, batch, context)
        for work, (speed_ratio, speeds) in works.items():
            print(
                f"{batch:>5}  {work:<28} {speeds['engine']:>9,.0f} {speeds['bare loop']:>9,.0f}  "
                f"{speed_ratio}, {aim}"
            )
            figures[f"batch {batch}, {work}"] = speed_ratio.figures() | {
                "tokens_per_second": speeds,
                "aim": aim,
            }
        report.bars(chart, next(iter(works.values()))[1])
    report.save("bare", figures, plot)
