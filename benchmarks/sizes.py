"""Models of the sizes that people have: the engine against transformers and llama.cpp, step by step.

Weights are random, in the shapes of published models. All systems decode at the same time: after each
token of transformers' `generate`, every other system takes one step, so a busy moment of the machine
hits all of them. Beside each ratio is the share of the engine's step that is spent in matrix products:
everything else together cannot gain more than the rest.

transformers runs with sdpa attention and a dynamic cache, its best settings on a CPU. A quantized GGUF
file is loaded as `Engine.load` does, and llama.cpp, whose quantizer made it, reads the same file;
transformers computes with no such weights.
"""

import gc
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
from benchmarks.llama_cpp_library import NoLlamaCppError, library
from benchmarks.llama_cpp_system import LlamaCpp, quantize
from benchmarks.random_model import NAMES, SHAPES, NumberTokenizer, RandomModel, write_gguf
from engine import Engine, EngineConfig, SamplingParams
from engine.core.compute.device import resolve_dtype
from engine.core.compute.torch_runner import TorchRunner
from engine.core.request import Request
from engine.models.layers import Linear
from engine.models.loader import build
from engine.models.threads import set_threads
from engine.models.weights.gguf_checkpoint import GGUFCheckpoint

PROMPT = 1  # tokens; decoding is measured, and the row with a context measures a long prompt
# The engine's weights -> the type of llama.cpp's file beside it.
LLAMA_CPP = {"float32": "F16", "bfloat16": "F16", "Q8_0": "Q8_0", "Q4_K_M": "Q4_K_M"}


class Side(Protocol):
    """A system that takes part: prompts first, then one token per sequence and step."""

    def start(self, prompts: list[list[int]], /) -> None:
        """Compute the prompts and the first token of each."""
        ...

    def step(self) -> None:
        """Compute the next token of each sequence."""
        ...

    def close(self) -> None:
        """Free its memory."""
        ...


class EngineSide:
    """The engine with its event log, for texts of `length` tokens."""

    def __init__(self, runner: TorchRunner, vocab_size: int, batch: int, length: int) -> None:
        config = EngineConfig(
            token_budget=batch * length, max_batch_size=batch, max_kv_tokens=batch * (length + 16)
        )
        self._length = length
        tokenizer = NumberTokenizer(vocab_size)
        self._engine = Engine(runner, config, tokenizer=tokenizer)
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

    def close(self) -> None:
        """See `Side`: the model serves the next batch size, too."""


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
    weights: Annotated[str, typer.Option(help=f"of {', '.join(LLAMA_CPP)}")] = ",".join(LLAMA_CPP),
    threads: Annotated[int, typer.Option(help="of each system")] = 2,
    batches: Annotated[str, typer.Option(help="sequences that decode together")] = "1,8,32",
    steps: Annotated[int, typer.Option(min=2, help="measured for each row")] = 8,
    context: Annotated[int, typer.Option(help="tokens of a long prompt; 0 for none")] = 2000,
) -> None:
    """Measure each shape, precision and batch size, and print a row as soon as it is measured."""
    names = {"--shapes": (shapes, SHAPES), "--weights": (weights, LLAMA_CPP)}
    for option, (value, known) in names.items():
        if unknown := set(value.split(",")) - known.keys():
            raise typer.BadParameter(f"{option} {min(unknown)}: there are {', '.join(known)}")
    print("random weights, greedy, event log on; tokens per second", flush=True)
    set_threads(threads)
    figures: dict[str, Any] = {}
    for shape in shapes.split(","):
        with TemporaryDirectory() as folder:
            files = _llama_cpp_files(shape, Path(folder), weights.split(","))
            for stored in weights.split(","):
                if stored in files and stored == LLAMA_CPP[stored]:
                    model, runner = None, _loaded(files[stored])
                elif stored == LLAMA_CPP[stored]:
                    continue  # only llama.cpp can write the file
                else:
                    model = RandomModel.make(shape, getattr(torch, stored))
                    runner = TorchRunner(model.model, shape)
                rows = [(int(batch), PROMPT) for batch in batches.split(",")]
                # In bfloat16, transformers takes minutes for the prompt.
                rows += [(1, context)] if context and stored == "float32" else []
                for batch, prompt in rows:
                    title = f"{NAMES[shape]}, {stored}, batch {batch}"
                    title += f", context {prompt}" if prompt > PROMPT else ""
                    length = prompt + steps + 4
                    sides: dict[str, Side] = {
                        "engine": EngineSide(runner, SHAPES[shape]["vocab_size"], batch, length)
                    }
                    kind = LLAMA_CPP[stored]
                    if kind in files and prompt == PROMPT:
                        sides[f"llama.cpp {kind}"] = LlamaCpp(
                            files[kind], batch, length, threads=threads
                        )
                    measured = _measure(title, sides, model, (batch, prompt, steps))
                    figures[title] = measured.figures()
                    print(f"{title}: {measured.line()}", flush=True)
                    if prompt > PROMPT:
                        ours, theirs = (measured.prefill[x] for x in ("engine", "transformers"))
                        print(f"{title}: prefill {ours:.1f} s, transformers {theirs:.1f} s")
                    for side in sides.values():
                        side.close()
                del model, runner
                gc.collect()
    save("sizes", figures)


def _loaded(file: Path) -> TorchRunner:
    """Load a GGUF file as `Engine.load` does with its default precision."""
    checkpoint = GGUFCheckpoint(file)
    checkpoint.dtype = resolve_dtype("auto", checkpoint.stored_dtype(), checkpoint.device)
    return TorchRunner(build(checkpoint.config, checkpoint), file.stem)


def _measure(
    name: str, sides: dict[str, Side], model: RandomModel | None, counts: tuple[int, int, int]
) -> Measured:
    """Decode with all systems in turns, and with transformers if there is a model for it.

    counts  batch size, prompt tokens, measured steps
    """
    batch, prompt, steps = counts
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
        if model is None:
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


def _llama_cpp_files(shape: str, folder: Path, weights: list[str]) -> dict[str, Path]:
    """Write the model as the GGUF files that go with these weights, and return them by type."""
    try:
        library()
    except NoLlamaCppError as missing:
        print(missing)
        return {}
    kinds = {LLAMA_CPP[stored] for stored in weights}
    file = folder / f"{NAMES[shape]}-F16.gguf"
    write_gguf(file, SHAPES[shape], RandomModel.make(shape, torch.bfloat16).weights.tensors)
    return {"F16": file} | {
        kind: quantize(file, folder / f"{NAMES[shape]}-{kind}.gguf", kind, threads=2)
        for kind in sorted(kinds - {"F16"})
    }
