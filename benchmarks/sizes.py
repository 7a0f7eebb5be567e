"""Models of the sizes that people have: the engine against transformers and llama.cpp, step by step.

Weights are random, in the shapes of published models. All systems decode at the same time: after each
token of transformers' `generate`, every other system takes one step, so a busy moment of the machine
hits all of them. Beside each ratio is the share of the engine's step that is spent in matrix products:
everything else together cannot gain more than the rest.

transformers runs with sdpa attention and a dynamic cache, which `others` finds to be its best settings.
int8 is how the engine holds quantized GGUF files, in a model of either precision; transformers has no
counterpart, so only llama.cpp's own types for such files are beside it.

Each row is printed as soon as it is measured. UNDERGLASS_SIZES=full measures everything, which takes
hours; the default is a selection for about a quarter of an hour on two idle cores. Each part of it can
be set, for example: UNDERGLASS_SIZES_SHAPES=0.5B,1.5B UNDERGLASS_SIZES_DTYPES=bfloat16,int8-float32
UNDERGLASS_SIZES_BATCHES=1 UNDERGLASS_SIZES_THREADS=2 UNDERGLASS_SIZES_CONTEXT=0 (no long context).
"""

import gc
import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import torch
from tqdm import tqdm
from transformers.generation import BaseStreamer

from benchmarks import report
from benchmarks.llama_cpp_system import INSTALL, LlamaCpp
from benchmarks.pairs import ratio
from benchmarks.random_model import NAMES, SHAPES, NumberTokenizer, RandomModel, quantize_gguf
from benchmarks.transformers_systems import greedy
from engine import Engine, EngineConfig, SamplingParams
from engine.core.request import Request
from engine.models.layers import Linear
from engine.models.threads import set_threads

PROMPT = 1  # tokens; decoding is measured, and the rows with a context measure long prompts
FULL = os.environ.get("UNDERGLASS_SIZES") == "full"
# On a busy machine, processor time is more reliable; it is comparable for one thread only.
CLOCK = (
    time.process_time if os.environ.get("UNDERGLASS_SIZES_CLOCK") == "cpu" else time.perf_counter
)
_QUANTIZED = ("Q8_0", "Q4_K_M")
# What is measured -> the types of llama.cpp's files beside it.
LLAMA_CPP = {
    "float32": ("F16",),
    "bfloat16": ("F16",),
    "int8-float32": _QUANTIZED,
    "int8-bfloat16": _QUANTIZED,
}


@dataclass(frozen=True)
class Selection:
    """What is measured of a shape.

    steps    batch size -> measured steps
    context  tokens of the long prompt; 0 for none
    """

    dtypes: list[str]
    threads: list[int]
    steps: dict[int, int]
    context: int

    @classmethod
    def of(cls, shape: str) -> "Selection":
        """Return the selection for a shape. The largest gets less, unless the environment says so."""
        largest = shape == "1.5B"
        steps = {1: 10, 8: 6, 32: 4}
        if largest:
            steps = {1: 5, 8: 3, 32: 2}
        if FULL:
            steps = {1: 48, 8: 24, 32: 12}
        dtypes = "float32,bfloat16" if largest and not FULL else ",".join(LLAMA_CPP)
        threads = "2" if largest and not FULL else "1,2"
        context = "0" if largest and not FULL else "2000"
        batches = _selected("BATCHES", "1,8,32")
        return cls(
            dtypes=_selected("DTYPES", dtypes),
            threads=[int(count) for count in _selected("THREADS", threads)],
            steps={int(batch): steps[int(batch)] for batch in batches},
            context=int(_selected("CONTEXT", context)[0]),
        )


def _selected(name: str, default: str) -> list[str]:
    return os.environ.get(f"UNDERGLASS_SIZES_{name}", default).split(",")


class Side(Protocol):
    """A system that takes part: prompts first, then one token per sequence and step."""

    def start(self, prompts: list[list[int]], /) -> None:
        """Compute the prompts and the first token of each."""
        ...

    def step(self) -> None:
        """Compute the next token of each sequence."""
        ...


class EngineSide:
    """The engine with its event log, for texts of `length` tokens."""

    def __init__(self, model: RandomModel, batch: int, length: int) -> None:
        config = EngineConfig(
            token_budget=batch * length, max_batch_size=batch, max_kv_tokens=batch * (length + 16)
        )
        self._length = length
        tokenizer = NumberTokenizer(model.entries["vocab_size"])
        self._engine = Engine(model.runner, config, tokenizer=tokenizer)
        self._requests: list[Request] = []

    def start(self, prompts: list[list[int]]) -> None:
        """See `Side`."""
        rest = self._length - len(prompts[0])
        params = SamplingParams(max_tokens=rest, temperature=0, ignore_eos=True)
        self._requests = [self._engine.submit(tokens, params) for tokens in prompts]
        self.step()
        assert all(len(request.output_ids) == 1 for request in self._requests)

    def step(self) -> None:
        """See `Side`."""
        self._engine.step()

    def outputs(self) -> list[list[int]]:
        """Return the tokens of each sequence."""
        return [request.output_ids for request in self._requests]


class Turns(BaseStreamer):
    """Called by `generate` after each token: lets the other systems take a step, and times all."""

    def __init__(self, sides: dict[str, Side], bar: tqdm) -> None:
        self.seconds: dict[str, list[float]] = {name: [] for name in ("transformers", *sides)}
        self._sides, self._bar = sides, bar
        self._since: float | None = None

    def put(self, value: torch.Tensor) -> None:
        """Called with the prompts, then with each step's tokens. The first step is the prompts'."""
        del value
        if self._since is not None:
            self.seconds["transformers"].append(CLOCK() - self._since)
            self.turn()
        self._since = CLOCK()

    def turn(self) -> None:
        """Let every side take a step, each time in another order."""
        names = list(self._sides)
        first = len(self.seconds[names[0]]) % len(names)
        for name in names[first:] + names[:first]:
            self.seconds[name].append(_seconds(self._sides[name].step))
        self._bar.update()

    def end(self) -> None:
        """Nothing to close."""


@dataclass
class Measured:
    """One configuration: seconds of each system's prefill and of its steps."""

    prefill: dict[str, float]
    steps: dict[str, list[float]]
    products: float  # share of the engine's steps
    same_tokens: float | None  # share of tokens on which engine and transformers agree
    over: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.over = {
            name: ratio(self.steps["engine"], times)
            for name, times in self.steps.items()
            if name != "engine"
        }

    def line(self, batch: int) -> str:
        """Return speeds, and the engine's over each other system's."""
        cells = [f"engine {self.speed('engine', batch):7.1f} tok/s, products {self.products:4.0%}"]
        for name, found in self.over.items():
            cells.append(f"{name} {self.speed(name, batch):7.1f}: {found.quartiles[1]:5.2f}x")
        if self.same_tokens is not None:
            cells.append(f"same tokens {self.same_tokens:4.0%}")
        return "; ".join(cells)

    def speed(self, name: str, batch: int) -> float:
        """Return tokens per second."""
        return batch / statistics.median(self.steps[name])

    def figures(self, batch: int) -> dict[str, Any]:
        """Return the numbers for `report.save`."""
        return {
            "tokens_per_second": {name: self.speed(name, batch) for name in self.steps},
            "prefill_seconds": self.prefill,
            "engine_over": {name: found.figures() for name, found in self.over.items()},
            "share_of_matrix_products": self.products,
            "same_tokens": self.same_tokens,
        }


def main() -> None:
    """Measure, print and save."""
    shapes = _selected("SHAPES", "0.5B,0.6B,1.5B" if FULL else "0.5B,1.5B")
    if unknown := set(shapes) - SHAPES.keys():
        raise SystemExit(f"unknown shape {min(unknown)}; there are {', '.join(SHAPES)}")
    if importlib.util.find_spec("llama_cpp") is None:
        print(INSTALL)
    print("random weights, greedy, event log on; tokens per second", flush=True)
    figures: dict[str, Any] = {}
    for shape in shapes:
        with TemporaryDirectory() as folder:
            _measure_shape(shape, Path(folder), figures)
    first = next(iter(figures.values()))
    plot, [axes] = report.panels([next(iter(figures))], "tokens/s")
    report.bars(axes, first["tokens_per_second"], digits=1)
    report.save("sizes", figures, plot)


def _measure_shape(shape: str, folder: Path, figures: dict[str, Any]) -> None:
    selection = Selection.of(shape)
    kinds = {kind for dtype in selection.dtypes for kind in LLAMA_CPP[dtype]}
    files = _llama_cpp_files(shape, folder, kinds)
    for name in selection.dtypes:
        quantization, _, precision = name.rpartition("-")
        model = RandomModel.make(shape, getattr(torch, precision), quantization == "int8")
        beside = {kind: files[kind] for kind in LLAMA_CPP[name] if kind in files}
        for threads in selection.threads:
            set_threads(threads)
            for batch, steps in selection.steps.items():
                llama = {
                    f"llama.cpp {kind}": LlamaCpp(
                        file, "F16", True, batch, PROMPT + steps + 4, threads=threads
                    )
                    for kind, file in beside.items()
                }
                title = f"{NAMES[shape]}, {name}, threads {threads}, batch {batch}"
                measured = _measure(title, model, llama, (batch, PROMPT, steps))
                print(f"{title}: {measured.line(batch)}", flush=True)
                figures[title] = measured.figures(batch)
                for side in llama.values():
                    side.close()
        # In bfloat16, transformers takes minutes for the prompt.
        if selection.context and (FULL or name == "float32") and not quantization:
            title = f"{NAMES[shape]}, {name}, threads {threads}, context {selection.context}"
            steps = selection.steps[min(selection.steps)]
            measured = _measure(title, model, {}, (1, selection.context, steps))
            ours, theirs = (measured.prefill[side] for side in ("engine", "transformers"))
            print(
                f"{title}: prefill engine {ours:.1f} s, transformers {theirs:.1f} s: "
                f"{theirs / ours:.2f}x\n{title}: {measured.line(1)}",
                flush=True,
            )
            figures[title] = measured.figures(1)
        del model
        gc.collect()


def _measure(
    name: str, model: RandomModel, llama: dict[str, LlamaCpp], counts: tuple[int, int, int]
) -> Measured:
    """Decode with all systems in turns; `counts`: batch size, prompt tokens, measured steps."""
    batch, prompt, steps = counts
    length = prompt + steps + 4
    engine = EngineSide(model, batch, length)
    sides: dict[str, Side] = {"engine": engine, **llama}
    prompts = [[(7 * i + 13 * j + i * i) % 251 for i in range(prompt)] for j in range(batch)]
    prefill = {
        side: _seconds(lambda side=side: sides[side].start(prompts))  # type: ignore[misc]
        for side in sides
    }
    same: float | None = None
    # The first step of each side warms it up, as the prompts do for transformers.
    with (
        tqdm(total=steps + 1, desc=name, leave=False, disable=None) as bar,
        _timed_products() as products,
    ):
        turns = Turns(sides, bar)
        if model.weights.int8:
            for _ in range(steps + 1):
                turns.turn()
        else:
            with torch.inference_mode():
                output = model.transformers().generate(
                    torch.tensor(prompts),
                    attention_mask=torch.ones(batch, prompt, dtype=torch.int64),
                    generation_config=greedy(steps + 1),
                    streamer=turns,
                )
            prefill["transformers"] = turns.seconds["transformers"][0]
            theirs = output[:, prompt:].tolist()
            pairs = [
                (one, other)
                for ours, row in zip(engine.outputs(), theirs, strict=True)
                for one, other in zip(ours, row, strict=False)
            ]
            same = sum(one == other for one, other in pairs) / len(pairs)
    share = sum(products) / sum(turns.seconds["engine"])
    measured = {side: times[1:] for side, times in turns.seconds.items() if times}
    return Measured(prefill, measured, share, same)


@contextmanager
def _timed_products() -> Iterator[list[float]]:
    """Within this block, collect the seconds of each projection."""
    seconds: list[float] = []
    call = Linear.__call__

    def timed(self: Linear, x: torch.Tensor) -> torch.Tensor:
        start = CLOCK()
        y = call(self, x)
        seconds.append(CLOCK() - start)
        return y

    Linear.__call__ = timed  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        Linear.__call__ = call  # type: ignore[method-assign]


def _llama_cpp_files(shape: str, folder: Path, kinds: set[str]) -> dict[str, Path]:
    """Write the model as GGUF files of these types, and return them by type."""
    if importlib.util.find_spec("llama_cpp") is None:
        return {}
    file = folder / f"{NAMES[shape]}-F16.gguf"
    RandomModel.make(shape, torch.bfloat16).write_gguf(file)
    files = {kind: quantize_gguf(file, kind, threads=2) for kind in sorted(kinds - {"F16"})}
    return {"F16": file} | files


def _seconds(work: Callable[[], object]) -> float:
    start = CLOCK()
    work()
    return CLOCK() - start
