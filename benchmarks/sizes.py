"""Models of the sizes that people have: the engine against transformers and llama.cpp, step by step.

Weights are random, in the shapes of published models. All systems decode at the same time: after each
token of transformers' `generate`, every other system takes one step, so a busy moment of the machine
hits all of them. Beside each ratio is the share of the engine's step that is spent in matrix products:
everything else together cannot gain more than the rest.

transformers runs with sdpa attention and a dynamic cache, its best settings on a CPU. int8 is how the
engine holds quantized GGUF files, in a model of either precision; transformers has no counterpart, so
only llama.cpp's own types for such files are beside it.
"""

import gc
import importlib.util
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Protocol

import torch
import typer
from tqdm import tqdm
from transformers import GenerationConfig
from transformers.generation import BaseStreamer

from benchmarks.harness import Ratio, save, timed
from benchmarks.llama_cpp_system import INSTALL, LlamaCpp
from benchmarks.random_model import NAMES, SHAPES, NumberTokenizer, RandomModel, quantize_gguf
from engine import Engine, EngineConfig, SamplingParams
from engine.core.request import Request
from engine.models.layers import Linear
from engine.models.threads import set_threads

PROMPT = 1  # tokens; decoding is measured, and the row with a context measures a long prompt
_QUANTIZED = ("Q8_0", "Q4_K_M")
# What is measured -> the types of llama.cpp's files beside it.
LLAMA_CPP = {
    "float32": ("F16",),
    "bfloat16": ("F16",),
    "int8-float32": _QUANTIZED,
    "int8-bfloat16": _QUANTIZED,
}
HAS_LLAMA_CPP = importlib.util.find_spec("llama_cpp") is not None


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
        self.requests: list[Request] = []

    def start(self, prompts: list[list[int]]) -> None:
        """See `Side`."""
        rest = self._length - len(prompts[0])
        params = SamplingParams(max_tokens=rest, temperature=0, ignore_eos=True)
        self.requests = [self._engine.submit(tokens, params) for tokens in prompts]
        self.step()
        assert all(len(request.output_ids) == 1 for request in self.requests)

    def step(self) -> None:
        """See `Side`."""
        self._engine.step()


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
            self.seconds["transformers"].append(time.perf_counter() - self._since)
            self.turn()
        self._since = time.perf_counter()

    def turn(self) -> None:
        """Let every side take a step, each time in another order."""
        names = list(self._sides)
        first = len(self.seconds[names[0]]) % len(names)
        for name in names[first:] + names[:first]:
            self.seconds[name].append(timed(self._sides[name].step))
        self._bar.update()

    def end(self) -> None:
        """Nothing to close."""


@dataclass
class Measured:
    """One configuration: seconds of each system's prefill and of its steps."""

    batch: int
    prefill: dict[str, float]
    steps: dict[str, list[float]]
    products: float  # share of the engine's steps

    def line(self) -> str:
        """Return speeds, and the engine's over each other system's."""
        cells = [f"engine {self._speed('engine'):7.1f} tok/s, products {self.products:4.0%}"]
        for name, ratio in self._over().items():
            cells.append(f"{name} {self._speed(name):7.1f}: {ratio.quartiles[1]:5.2f}x")
        return "; ".join(cells)

    def figures(self) -> dict[str, Any]:
        """Return the numbers for `save`."""
        return {
            "tokens_per_second": {name: self._speed(name) for name in self.steps},
            "prefill_seconds": self.prefill,
            "engine_over": {name: ratio.figures() for name, ratio in self._over().items()},
            "share_of_matrix_products": self.products,
        }

    def _over(self) -> dict[str, Ratio]:
        engine = self.steps["engine"]
        others = {name: times for name, times in self.steps.items() if name != "engine"}
        return {name: Ratio.of(engine, times) for name, times in others.items()}

    def _speed(self, name: str) -> float:
        return self.batch / statistics.median(self.steps[name])


def main(  # noqa: PLR0917
    shapes: Annotated[str, typer.Option(help=f"of {', '.join(SHAPES)}")] = "0.5B",
    dtypes: Annotated[str, typer.Option(help=f"of {', '.join(LLAMA_CPP)}")] = ",".join(LLAMA_CPP),
    threads: Annotated[int, typer.Option(help="of each system")] = 2,
    batches: Annotated[str, typer.Option(help="sequences that decode together")] = "1,8,32",
    steps: Annotated[int, typer.Option(min=2, help="measured for each row")] = 8,
    context: Annotated[int, typer.Option(help="tokens of a long prompt; 0 for none")] = 2000,
) -> None:
    """Measure each shape, precision and batch size, and print a row as soon as it is measured."""
    names = {"--shapes": (shapes, SHAPES), "--dtypes": (dtypes, LLAMA_CPP)}
    for option, (value, known) in names.items():
        if unknown := set(value.split(",")) - known.keys():
            raise typer.BadParameter(f"{option} {min(unknown)}: there are {', '.join(known)}")
    if not HAS_LLAMA_CPP:
        print(INSTALL)
    print("random weights, greedy, event log on; tokens per second", flush=True)
    set_threads(threads)
    figures: dict[str, Any] = {}
    for shape in shapes.split(","):
        with TemporaryDirectory() as folder:
            kinds = {kind for dtype in dtypes.split(",") for kind in LLAMA_CPP[dtype]}
            files = _llama_cpp_files(shape, Path(folder), kinds)
            for dtype in dtypes.split(","):
                quantization, _, precision = dtype.rpartition("-")
                model = RandomModel.make(shape, getattr(torch, precision), quantization == "int8")
                beside = {kind: files[kind] for kind in LLAMA_CPP[dtype] if kind in files}
                rows = [(int(batch), PROMPT) for batch in batches.split(",")]
                # In bfloat16, transformers takes minutes for the prompt.
                rows += [(1, context)] if context and dtype == "float32" else []
                for batch, prompt in rows:
                    title = f"{NAMES[shape]}, {dtype}, batch {batch}"
                    title += f", context {prompt}" if prompt > PROMPT else ""
                    llama = {
                        f"llama.cpp {kind}": LlamaCpp(
                            file, batch, prompt + steps + 4, threads=threads
                        )
                        for kind, file in beside.items()
                        if prompt == PROMPT
                    }
                    measured = _measure(title, model, llama, (batch, prompt, steps))
                    figures[title] = measured.figures()
                    print(f"{title}: {measured.line()}", flush=True)
                    if prompt > PROMPT:
                        ours, theirs = (measured.prefill[x] for x in ("engine", "transformers"))
                        print(f"{title}: prefill {ours:.1f} s, transformers {theirs:.1f} s")
                    for side in llama.values():
                        side.close()
                del model
                gc.collect()
    save("sizes", figures)


def _measure(
    name: str, model: RandomModel, llama: dict[str, LlamaCpp], counts: tuple[int, int, int]
) -> Measured:
    """Decode with all systems in turns; `counts`: batch size, prompt tokens, measured steps."""
    batch, prompt, steps = counts
    engine = EngineSide(model, batch, prompt + steps + 4)
    sides: dict[str, Side] = {"engine": engine, **llama}
    prompts = [[(7 * i + 13 * j + i * i) % 251 for i in range(prompt)] for j in range(batch)]
    prefill = {
        side: timed(lambda side=side: sides[side].start(prompts))  # type: ignore[misc]
        for side in sides
    }
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
            greedy = GenerationConfig(
                max_new_tokens=steps + 1, do_sample=False, pad_token_id=0, eos_token_id=-1
            )
            with torch.inference_mode():
                model.transformers().generate(
                    torch.tensor(prompts),
                    attention_mask=torch.ones(batch, prompt, dtype=torch.int64),
                    generation_config=greedy,
                    streamer=turns,
                )
            prefill["transformers"] = turns.seconds["transformers"][0]
    share = sum(products) / sum(turns.seconds["engine"])
    measured = {side: times[1:] for side, times in turns.seconds.items() if times}
    return Measured(batch, prefill, measured, share)


@contextmanager
def _timed_products() -> Iterator[list[float]]:
    """Within this block, collect the seconds of each projection."""
    seconds: list[float] = []
    call = Linear.__call__

    def timed_call(self: Linear, x: torch.Tensor) -> torch.Tensor:
        start = time.perf_counter()
        y = call(self, x)
        seconds.append(time.perf_counter() - start)
        return y

    Linear.__call__ = timed_call  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        Linear.__call__ = call  # type: ignore[method-assign]


def _llama_cpp_files(shape: str, folder: Path, kinds: set[str]) -> dict[str, Path]:
    """Write the model as GGUF files of these types, and return them by type."""
    if not HAS_LLAMA_CPP:
        return {}
    file = folder / f"{NAMES[shape]}-F16.gguf"
    RandomModel.make(shape, torch.bfloat16).write_gguf(file)
    files = {kind: quantize_gguf(file, kind, threads=2) for kind in sorted(kinds - {"F16"})}
    return {"F16": file} | files
