"""Memory and time that loading takes, for each type of file: nothing is held twice.

A model with random weights, by default in the 0.5B shape, is written to files. Each is loaded in a
process of its own, which reports from /proc what it held before and after, and at the peak: anonymous
memory, which is the process's own, and pages of the file, which the kernel may drop and processes
share.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from safetensors.torch import save_file

MB = 10**6
# What is loaded -> the file, and the precision of the model.
FILES = {
    "float32 safetensors, as float32": ("float32", "float32"),
    "bfloat16 safetensors, as bfloat16": ("bfloat16", "bfloat16"),
    "bfloat16 safetensors, as float32": ("bfloat16", "float32"),
    "F16 GGUF, as float32": ("F16", "float32"),
    "Q8_0 GGUF, as bfloat16": ("Q8_0", "bfloat16"),
    "Q4_K_M GGUF, as bfloat16": ("Q4_K_M", "bfloat16"),
}


def main(
    shape: Annotated[str, typer.Option(help="of the model")] = "0.5B",
    only: Annotated[str, typer.Option(help="the files with this in their name")] = "",
) -> None:
    """Write the files, load each in a new process, and print what it took."""
    from benchmarks.harness import save
    from benchmarks.llama_cpp_library import NoLlamaCppError
    from benchmarks.random_model import SHAPES

    if shape not in SHAPES:
        raise typer.BadParameter(f"--shape {shape}: there are {', '.join(SHAPES)}")
    figures: dict[str, object] = {}
    print(f"{'MB':36} {'file':>6} {'stated':>7} {'own':>6} {'mapped':>7} {'peak':>6}   s")
    with tempfile.TemporaryDirectory() as folder:
        for name, (stored, dtype) in FILES.items():
            if only not in name:
                continue
            try:
                path = _written(Path(folder), shape, stored)
            except NoLlamaCppError as missing:
                print(f"{name}: {missing}")
                continue
            command = [sys.executable, "-m", "benchmarks.loading", str(path), dtype]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found = figures[name] = json.loads(output)
            sizes = " ".join(
                f"{found[key] / MB:{width}.0f}"
                for key, width in zip(
                    ("file", "stated", "own", "mapped", "peak"), (6, 7, 6, 7, 6), strict=True
                )
            )
            print(f"{name:36} {sizes} {found['seconds']:3.0f}", flush=True)
    save("loading", figures)


def _written(folder: Path, shape: str, stored: str) -> Path:
    """Return a model's directory or GGUF file, written if it is not there yet."""
    from benchmarks.llama_cpp_system import quantize
    from benchmarks.random_model import SHAPES, RandomModel, write_gguf

    torch.set_num_threads(1)
    if stored in ("float32", "bfloat16"):
        directory = folder / stored
        if directory.exists():
            return directory
        directory.mkdir()
        model = RandomModel.make(shape, getattr(torch, stored))
        save_file(model.weights.tensors, directory / "model.safetensors")
        (directory / "config.json").write_text(json.dumps(SHAPES[shape]))
        return directory
    source = folder / "model-F16.gguf"
    if not source.exists():
        write_gguf(source, SHAPES[shape], RandomModel.make(shape, torch.float32).weights.tensors)
    return source if stored == "F16" else quantize(source, folder / f"model-{stored}.gguf", stored)


def _measure(path: Path, dtype: torch.dtype) -> dict[str, float]:
    """Load a model in this process, whose libraries are loaded already."""
    from benchmarks.harness import status
    from engine.models.config_file import read_config
    from engine.models.loader import build
    from engine.models.weights.checkpoint import Checkpoint
    from engine.models.weights.gguf_checkpoint import GGUFCheckpoint

    torch.set_num_threads(1)
    before = status()
    start = time.perf_counter()
    weights: Checkpoint
    if path.is_file():
        weights = gguf = GGUFCheckpoint(path, dtype)
        model = build(gguf.config, weights)
    else:
        weights = Checkpoint(path, dtype)
        model = build(read_config(path), weights)
    seconds = time.perf_counter() - start
    after = status()
    files = [path] if path.is_file() else list(path.glob("*.safetensors"))
    return {
        "file": sum(file.stat().st_size for file in files),
        "stated": model.weight_bytes,
        "own": after["RssAnon"] - before["RssAnon"],
        "mapped": after["RssFile"] - before["RssFile"],
        "peak": after["VmHWM"] - before["VmRSS"],
        "seconds": seconds,
    }


if __name__ == "__main__":
    print(json.dumps(_measure(Path(sys.argv[1]), getattr(torch, sys.argv[2]))))
