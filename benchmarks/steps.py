"""The time of a decode step, part by part, in microseconds and shares.

Every other step of a run is profiled: the functions below are replaced by ones that measure their own
time, without that of the functions they call. Profiling costs time, so the other steps give the real
duration, and the shares of the profiled ones divide it.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks import report
from benchmarks.bare import Served
from benchmarks.workload import story_prompts
from engine import Engine
from engine.core.compute import torch_runner
from engine.core.compute.paged_attention import PagedAttention
from engine.models.config import LlamaConfig
from engine.models.config_file import read_config
from engine.models.decoder import Decoder
from engine.models.layers import Linear
from engine.models.loader import BUNDLED
from engine.models.threads import set_threads

BATCHES = (1, 8, 32)
CONTEXTS = (128, 448)  # the middle of the realistic run of `bare`, and a long one
STEPS = 96

PARTS = {
    "scheduling": "which requests compute how many tokens",
    "batch": "rows to tensors, block tables to indexes",
    "norms": "norms, rotations, residual additions, embedding",
    "projections": "queries, keys, values and output",
    "page write": "new keys and values into their slots",
    "page read": "contexts out of their blocks",
    "attention": "the kernel",
    "feed-forward": "gate, up, down",
    "logits": "the last projection, onto the vocabulary",
    "sampling": "log-probabilities and the choice",
    "commit": "tokens, text, prefix cache, event log",
}


# The parts that a bare loop lacks, mostly: it also writes its cache and takes the likeliest token.
SERVING = ("scheduling", "batch", "page read", "sampling", "commit")

_CONFIG = read_config(BUNDLED)
assert isinstance(_CONFIG, LlamaConfig)


class Stopwatch:
    """Divides time between parts: the innermost running part gets it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._running: list[str] = []
        self._since = 0.0

    def of(self, function: Callable[..., Any], part: Callable[..., str]) -> Callable[..., Any]:
        """`function`, with its time given to `part(*args)`."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            name = part(*args)
            self._switch()
            self._running.append(name)
            try:
                return function(*args, **kwargs)
            finally:
                self._switch()
                self._running.pop()

        return timed

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now


def _projection(linear: Linear, _x: torch.Tensor) -> str:
    """Return the part that a projection belongs to, by the shape of its matrix."""
    outputs, inputs = linear.weight.shape
    if outputs == _CONFIG.vocab_size:
        return "logits"
    inner = (_CONFIG.intermediate_size, 2 * _CONFIG.intermediate_size)
    return "feed-forward" if outputs in inner or inputs in inner else "projections"


@contextmanager
def watched(engine: Engine) -> Iterator[Stopwatch]:
    """Within this block the parts of a step are timed."""
    watch = Stopwatch()
    run = torch_runner
    places: list[tuple[Any, str, str]] = [
        (Engine, "step", "commit"),
        (type(engine.scheduler), "schedule", "scheduling"),
        (run.TorchRunner, "run", "batch"),
        (run, "make_batch", "batch"),
        (run, "PagedAttention", "batch"),
        (Decoder, "forward", "norms"),
        (PagedAttention, "__call__", "page write"),
        (torch, "index_select", "page read"),
        (F, "scaled_dot_product_attention", "attention"),
        (F, "silu", "feed-forward"),
        (run, "sample", "sampling"),
    ]
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    saved.append((Linear, "__call__", Linear.__call__))
    for owner, name, part in places:
        setattr(owner, name, watch.of(getattr(owner, name), lambda *_, part=part: part))
    Linear.__call__ = watch.of(Linear.__call__, _projection)  # type: ignore[method-assign]
    try:
        yield watch
    finally:
        for owner, name, function in saved:
            setattr(owner, name, function)


def measure(batch: int, context: int) -> tuple[float, dict[str, float]]:
    """Seconds of a decode step around a context, and each part's share of it."""
    prompt = context - STEPS // 2
    served = Served(batch, prompt, STEPS + 4)
    engine = served.engine()
    for tokens in story_prompts(served.tokenizer, batch, prompt):
        engine.submit(tokens, served.params)
    for _ in range(3):
        engine.step()
    steps: list[float] = []
    parts: list[dict[str, float]] = []
    for _ in range(STEPS // 2):
        with watched(engine) as watch:
            engine.step()
        parts.append(watch.seconds)
        start = time.perf_counter()
        engine.step()
        steps.append(time.perf_counter() - start)
    middle = {part: statistics.median(each[part] for each in parts) for part in PARTS}
    whole = sum(middle.values())
    return statistics.median(steps), {part: spent / whole for part, spent in middle.items()}


def _us(seconds: float, share: float = 1.0) -> str:
    return f"{seconds * share * 1e6:8,.0f} us"


def main() -> None:
    """Print a table for each context; save them and a plot."""
    threads = set_threads()
    print(
        f"float32, {threads} thread, greedy, decode steps of equal contexts, event log on\n"
        f"load of the machine before: {os.getloadavg()[0]:.1f}"
    )
    figures: dict[str, Any] = {}
    plot, axes = report.panels(
        [f"batch {batch}" for batch in BATCHES], "share of a step, %; in blue: serving", height=4
    )
    for context in CONTEXTS:
        measured = {batch: measure(batch, context) for batch in BATCHES}
        print(f"\ncontext {context:<16}" + "".join(f"{f'batch {b}':>16}" for b in BATCHES))
        for part, what in PARTS.items():
            cells = [
                f"{_us(step, shares[part])} {shares[part]:4.0%}"
                for step, shares in measured.values()
            ]
            print(f"{part:<24}{' '.join(cells)}   {what}")
        serving = {b: sum(shares[part] for part in SERVING) for b, (_, shares) in measured.items()}
        cells = [f"{_us(step, serving[b])} {serving[b]:4.0%}" for b, (step, _) in measured.items()]
        print(f"{'of it serving':<24}{' '.join(cells)}   {', '.join(SERVING)}")
        print(f"{'step':<24}" + " ".join(f"{_us(step)}     " for step, _ in measured.values()))
        for batch, (step, shares) in measured.items():
            figures[f"batch {batch}, context {context}"] = {"step_us": step * 1e6, "shares": shares}
        if context == CONTEXTS[0]:
            for chart, (_, shares) in zip(axes, measured.values(), strict=True):
                report.bars(chart, {part: 100 * share for part, share in shares.items()})
                for bar, part in zip(chart.patches, PARTS, strict=True):
                    bar.set_color(report.HUES[0] if part in SERVING else report.OTHERS)
    report.save("steps", figures, plot)
