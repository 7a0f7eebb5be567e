"""Models of the sizes that people have: the engine against transformers and llama.cpp, step by step.

Weights are random, in the shapes of published models. Beside the ratios is the share of the engine's
steps that is spent in matrix products: everything else together cannot gain more than the rest. With
one thread, times are CPU times.

transformers runs with sdpa attention and a dynamic cache, its best settings on a CPU. A quantized GGUF
file is loaded as `Engine.load` does, and llama.cpp, whose quantizer made it, reads the same file;
transformers computes with no such weights.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import typer

from benchmarks.harness import save
from benchmarks.llama_cpp_library import NoLlamaCppError, library
from benchmarks.llama_cpp_system import LlamaCpp, quantize
from benchmarks.random_model import NAMES, SHAPES, NumberTokenizer, RandomModel, write_gguf
from benchmarks.sides import Clock, EngineSide, Side, clock_for, measure
from engine import Engine
from engine.core.compute.device import resolve_dtype
from engine.core.compute.torch_runner import TorchRunner
from engine.models.layers import Linear
from engine.models.loader import build
from engine.models.threads import set_threads
from engine.models.weights.gguf_checkpoint import GGUFCheckpoint

PROMPT = 1  # tokens; decoding is measured, and the row with a context measures a long prompt
# The engine's weights -> the type of llama.cpp's file beside it.
LLAMA_CPP = {"float32": "F16", "bfloat16": "F16", "Q8_0": "Q8_0", "Q4_K_M": "Q4_K_M"}
PREFILL = ("engine", "transformers")


class WatchedEngine(EngineSide):
    """Empties a list of seconds after the prompts, so that it holds those of the steps."""

    def __init__(self, *arguments: Any) -> None:
        *others, self._seconds = arguments
        super().__init__(*others)

    def start(self, prompts: list[list[int]]) -> None:
        """See `Side`."""
        super().start(prompts)
        self._seconds.clear()


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
    clock = clock_for(threads)
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
                tokenizer = NumberTokenizer(runner.vocab_size)
                make = partial(Engine, runner, tokenizer=tokenizer)
                rows = [(int(batch), PROMPT) for batch in batches.split(",")]
                # In bfloat16, transformers takes minutes for the prompt.
                rows += [(1, context)] if context and stored == "float32" else []
                for batch, prompt in rows:
                    title = f"{NAMES[shape]}, {stored}, batch {batch}"
                    title += f", context {prompt}" if prompt > PROMPT else ""
                    length = prompt + steps + 4
                    products = list[float]()
                    engine = WatchedEngine(make, batch, length, products)
                    sides: dict[str, Side] = {"engine": engine}
                    kind = LLAMA_CPP[stored]
                    if kind in files and prompt == PROMPT:
                        sides[f"llama.cpp {kind}"] = LlamaCpp(
                            files[kind], batch, length, threads=threads
                        )
                    prompts = [
                        [(7 * i + 13 * j + i * i) % 251 for i in range(prompt)]
                        for j in range(batch)
                    ]
                    theirs = model.transformers() if model else None
                    with _timed_products(products, clock):
                        measured = measure(title, sides, theirs, prompts, (steps, 1), clock)
                    share = sum(products) / sum(measured.blocks["engine"])
                    figures[title] = measured.figures() | {"share_of_matrix_products": share}
                    print(f"{title}: {measured.line()}; products {share:.0%}", flush=True)
                    if prompt > PROMPT:
                        prefill = (f"{name} {measured.prefill[name]:.1f} s" for name in PREFILL)
                        print(f"{title}: prefill {', '.join(prefill)}")
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


@contextmanager
def _timed_products(seconds: list[float], clock: Clock) -> Iterator[None]:
    """Within this block, collect the seconds of each projection."""
    call = Linear.__call__

    def timed_call(self: Linear, x: torch.Tensor) -> torch.Tensor:
        start = clock()
        y = call(self, x)
        seconds.append(clock() - start)
        return y

    Linear.__call__ = timed_call  # type: ignore[method-assign]
    try:
        yield
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
