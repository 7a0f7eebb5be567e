"""The bundled model beside a bare torch loop, transformers' `generate` and llama.cpp, in turns.

All decode the same prompts in float32, llama.cpp from a float16 file. They take turns in blocks of
steps, so that the weights of this small model are in the CPU's cache as they are when it runs alone.
With one thread, which is the default, times are CPU times.
"""

import json
import operator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import typer
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from benchmarks.bare_loop import BareLoop
from benchmarks.harness import save
from benchmarks.llama_cpp_library import NoLlamaCppError, library
from benchmarks.llama_cpp_system import LlamaCpp
from benchmarks.random_model import write_gguf
from benchmarks.sides import EngineSide, Side, clock_for, measure
from engine import Engine
from engine.models.loader import BUNDLED
from engine.models.threads import set_threads

BLOCK = 8  # steps


def main(
    batches: Annotated[str, typer.Option(help="sequences that decode together")] = "1,8,32",
    blocks: Annotated[int, typer.Option(min=2, help="of 8 steps, measured for each row")] = 16,
    prompt: Annotated[int, typer.Option(help="tokens before the first step")] = 64,
    threads: Annotated[int, typer.Option(help="of each system")] = 1,
) -> None:
    """Print a row for each batch size."""
    set_threads(threads)
    transformers = AutoModelForCausalLM.from_pretrained(
        BUNDLED, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    length = prompt + BLOCK * (blocks + 1) + 4
    figures: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        file = _file(Path(folder))
        for batch in map(int, batches.split(",")):
            engine = EngineSide(lambda config: Engine.load("bundled", config), batch, length)
            bare = BareLoop(batch, length)
            sides: dict[str, Side] = {"engine": engine, "bare loop": bare}
            if file:
                llama = LlamaCpp(file, batch, length, threads=threads, flash=False)
                sides["llama.cpp F16"] = llama
            prompts = [[256 + (7 * i + 13 * j) % 1000 for i in range(prompt)] for j in range(batch)]
            sizes, clock = (blocks, BLOCK), clock_for(threads)
            measured = measure(f"batch {batch}", sides, transformers, prompts, sizes, clock)
            # They may part where two tokens are equally likely but for rounding.
            theirs = map(list, zip(*bare.outputs, strict=True))
            same = sum(map(operator.eq, theirs, (one.output_ids for one in engine.requests)))
            figures[f"batch {batch}"] = measured.figures() | {"same_as_bare_loop": same}
            print(
                f"batch {batch:2}: {measured.line()}; {same} texts as in the bare loop", flush=True
            )
            for side in sides.values():
                side.close()
    save("bundled", figures)


def _file(folder: Path) -> Path | None:
    """Write the model as a GGUF file if llama.cpp is there to read it."""
    try:
        library()
    except NoLlamaCppError as missing:
        print(missing)
        return None
    entries = json.loads((BUNDLED / "config.json").read_text("utf-8"))
    write_gguf(folder / "bundled.gguf", entries, load_file(BUNDLED / "model.safetensors"))
    return folder / "bundled.gguf"
