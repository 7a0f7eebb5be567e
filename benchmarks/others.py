"""The engine against transformers and llama.cpp: the same weights, one thread, the same tokens.

Each system runs at its best settings: the candidates are tried at each batch size and the fastest
one is measured. Tried once by hand, on a busy machine by processor time, and left out since:

- `generate` compiled with torch.compile: a minute to compile, then 0.56 to 0.93 of the speed.
- llama.cpp with flash attention forced on: 0.85 to 0.99 of leaving it to llama.cpp; off: 0.95 to 1.01.
- `generate_batch` with other pages (32 or 256 tokens) and steps (256 to 2,048 tokens): within a tenth,
  without a winner. Flash attention and asynchronous batching raise errors on a CPU.
"""

import importlib.util
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import gguf

from benchmarks.agreement import Agreement, agreement
from benchmarks.llama_cpp_system import INSTALL, LlamaCpp, write_gguf
from benchmarks.pairs import Ratio, in_turns, quickest, ratio
from benchmarks.report import bars, panels, save
from benchmarks.transformers_systems import Generate, GenerateBatch
from benchmarks.underglass import Underglass
from benchmarks.workload import story_prompts

BATCHES = (1, 8, 32)
PROMPT, OUTPUT = 64, 128
TRIAL = 64  # output tokens when settings are tried
ROUNDS = 9
AIMS = {"transformers generate": 1.5, "llama.cpp": 1.0, "transformers generate_batch": 3.0}


class System(Protocol):
    """A system to compare, with its settings."""

    settings: str

    def run(self, prompts: Sequence[list[int]], max_tokens: int, /) -> list[list[int]]:
        """Output tokens of each prompt."""
        ...


@dataclass
class Measured:
    """One system at one batch size. `over` is the engine's speed over its speed."""

    settings: str
    tokens_per_second: float
    over: Ratio | None = None
    agreement: Agreement | None = None


def main() -> None:
    """Measure, print and save."""
    engine = Underglass(
        token_budget=2048, max_batch_size=max(BATCHES), max_kv_tokens=max(BATCHES) * 208
    )
    print(f"prompts of {PROMPT} tokens, {OUTPUT} output tokens each, greedy, no end token")
    print(f"engine: {engine.settings}")
    if importlib.util.find_spec("llama_cpp") is None:
        print(INSTALL)
    results = {}
    with TemporaryDirectory() as folder:
        for batch in BATCHES:
            results[batch] = _measure(batch, engine, _candidates(batch, Path(folder)))
    _save(results)


def _candidates(batch: int, folder: Path) -> dict[str, list[System]]:
    """Return each other system in all settings to try."""
    pages = {"num_blocks": 2 * batch + 8, "max_batch_tokens": 2048, "allow_block_sharing": False}
    systems: dict[str, list[System]] = {
        "transformers generate": [
            Generate(attention, cache)
            for attention, cache in itertools.product(("sdpa", "eager"), ("dynamic", "static"))
        ],
        "transformers generate_batch": [
            GenerateBatch(attention, **pages) for attention in ("sdpa", "paged|eager")
        ],
    }
    if importlib.util.find_spec("llama_cpp") is not None:
        systems["llama.cpp"] = []
        for kind, unified in itertools.product(("F16", "F32"), (False, True)):
            file = folder / f"bundled-{kind}.gguf"
            if not file.exists():
                write_gguf(file, gguf.GGMLQuantizationType[kind])
            systems["llama.cpp"].append(LlamaCpp(file, kind, unified, batch, PROMPT + OUTPUT))
    return systems


def _measure(
    batch: int, engine: Underglass, candidates: dict[str, list[System]]
) -> dict[str, Measured]:
    prompts = story_prompts(engine.tokenizer, batch, PROMPT)
    judge = next(one.model for one in candidates["transformers generate"])
    systems: dict[str, System] = {"engine": engine}
    for name, tried in candidates.items():
        trials = {one.settings: _work(one, prompts, TRIAL) for one in tried}
        best, seconds = quickest(trials)
        systems[name] = next(one for one in tried if one.settings == best)
        print(f"\nbatch {batch}, {name}: measured with {best}; also tried:")
        for settings in sorted(seconds.keys() - {best}, key=seconds.__getitem__):
            print(f"  {seconds[best] / seconds[settings]:.2f} of its speed: {settings}")

    outputs = {name: one.run(prompts, OUTPUT) for name, one in systems.items()}  # all warm
    works = {name: _work(one, prompts, OUTPUT) for name, one in systems.items()}
    seconds_of = in_turns(f"batch {batch}", works, ROUNDS)
    found = {}
    for name, times in seconds_of.items():
        speed = batch * OUTPUT / statistics.median(times)
        found[name] = Measured(systems[name].settings, speed)
        line = f"batch {batch:2}  {name:28} {speed:6,.0f} tok/s"
        if name != "engine":
            found[name].over = ratio(seconds_of["engine"], times)
            found[name].agreement = agreement(judge, prompts, outputs["engine"], outputs[name])
            if name != "llama.cpp":  # its sums are rounded differently
                found[name].agreement.require(name)
            line += f"   engine over it {found[name].over}; {found[name].agreement}"
        print(line, flush=True)
    return found


def _work(system: System, prompts: list[list[int]], tokens: int) -> Callable[[], object]:
    return lambda: system.run(prompts, tokens)


def _save(results: dict[int, dict[str, Measured]]) -> None:
    plot, columns = panels([f"batch {batch}" for batch in results], "tokens/s")
    figures: dict[str, object] = {"prompt_tokens": PROMPT, "output_tokens": OUTPUT, "aims": AIMS}
    for axes, (batch, found) in zip(columns, results.items(), strict=True):
        bars(axes, {name: one.tokens_per_second for name, one in found.items()})
        figures[f"batch {batch}"] = {
            name: {
                "settings": one.settings,
                "tokens_per_second": one.tokens_per_second,
                "engine_over_it": one.over and one.over.figures(),
                "agreement": one.agreement and one.agreement.figures(),
            }
            for name, one in found.items()
        }
    save("others", figures, plot)
