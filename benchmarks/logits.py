"""How far the logits of GGUF files are from the float model's, in the engine and in llama.cpp.

llama.cpp's own quantizer makes the files. `small` and `tiny` are random models, with every matrix in
the type that a row names. The bundled model's rows have 192 values, and a K-quant needs multiples of
256, so it has the types with blocks of 32. llama.cpp keeps its KV cache and its attention in float32
here, so both differ from the float model only by what they make of the weights.

The engine computes each text twice, all tokens in one pass ("at once") and token by token ("decode"),
because products of few tokens may have another kernel. Each pair of columns is the root mean square
of the difference, as a share of the logits' spread, and the share of positions whose likeliest token is
the same.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import typer
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.harness import save
from benchmarks.llama_cpp_library import library
from benchmarks.llama_cpp_system import LlamaCpp, quantize
from benchmarks.load.streams import OPENINGS
from benchmarks.random_model import SHAPES, RandomModel, write_gguf
from engine import Engine, SamplingParams
from engine.core.compute.model import Model
from engine.core.compute.torch_runner import TorchRunner, make_batch
from engine.core.request import Request
from engine.core.runner import Row
from engine.models.config_file import read_config
from engine.models.loader import BUNDLED, build
from engine.models.threads import set_threads
from engine.models.weights.checkpoint import Checkpoint
from engine.models.weights.gguf_checkpoint import GGUFCheckpoint

# The column of the table -> llama.cpp's name of a file in which that type is the usual one.
TYPES = {
    "F16": "F16",
    "Q8_0": "Q8_0",
    "Q4_0": "Q4_0",
    "Q4_K": "Q4_K_S",
    "Q5_K": "Q5_K_S",
    "Q6_K": "Q6_K",
}
BLOCKS_OF_32 = ("F16", "Q8_0", "Q4_0")
DTYPES = ("float32", "bfloat16")


@dataclass
class Subject:
    """A model that is written to files: its logits in float32, its texts, and the types it allows."""

    exact: Model
    texts: list[list[int]]
    types: tuple[str, ...]
    write: Callable[[Path], None]  # an F16 file


def main(
    models: Annotated[str, typer.Option(help="of bundled, small, tiny")] = "small,bundled",
    types: Annotated[str, typer.Option(help=f"of {', '.join(TYPES)}")] = ",".join(TYPES),
    dtypes: Annotated[str, typer.Option(help="the engine computes in")] = ",".join(DTYPES),
    texts: Annotated[int, typer.Option(help="of each model")] = 4,
    tokens: Annotated[int, typer.Option(help="of each text")] = 128,
) -> None:
    """Print a row for each model, type of file, precision and way to compute."""
    named = {"--models": (models, ("bundled", "small", "tiny")), "--types": (types, TYPES)}
    for option, (value, known) in (named | {"--dtypes": (dtypes, DTYPES)}).items():
        if unknown := set(value.split(",")) - set(known):
            raise typer.BadParameter(f"{option} {min(unknown)}: there are {', '.join(known)}")
    library()  # which raises where there is none
    set_threads(1)  # products of single tokens are too small for more
    figures: dict[str, Any] = {}
    print(f"{'':32} {'engine, llama.cpp':>18} {'engine, float':>18} {'llama.cpp, float':>18}")
    for name in models.split(","):
        subject = _subject(name, texts, tokens)
        exact = torch.cat([_at_once(subject.exact, text) for text in subject.texts])
        with TemporaryDirectory() as folder:
            source = Path(folder) / "F16.gguf"
            subject.write(source)
            for kind in types.split(","):
                if kind not in subject.types:
                    continue
                file = source
                if kind != "F16":
                    file = quantize(source, Path(folder) / f"{kind}.gguf", TYPES[kind], pure=True)
                theirs = _llama_cpp(file, subject.texts)
                for dtype in dtypes.split(","):
                    checkpoint = GGUFCheckpoint(file, getattr(torch, dtype))
                    model = build(checkpoint.config, checkpoint)
                    for way, compute in (("at once", _at_once), ("decode", _decoded)):
                        ours = torch.cat([compute(model, text) for text in subject.texts])
                        pairs = ((ours, theirs), (ours, exact), (theirs, exact))
                        row = f"{name}, {kind}, {dtype}, {way}"
                        figures[row] = _row(row, pairs)
    save("logits", figures)


def _row(name: str, pairs: tuple[tuple[Tensor, Tensor], ...]) -> dict[str, Any]:
    """Compare pairs of logits; print and return the numbers."""
    apart = [float((one - other).square().mean().sqrt() / other.std()) for one, other in pairs]
    same = [float((one.argmax(1) == other.argmax(1)).float().mean()) for one, other in pairs]
    cells = (f"{rms:10.5f} {share:7.1%}" for rms, share in zip(apart, same, strict=True))
    print(f"{name:32}", *cells, flush=True)
    names = ("engine_llama_cpp", "engine_float", "llama_cpp_float")
    return {
        pair: {"rms_of_spread": rms, "same_likeliest": share}
        for pair, rms, share in zip(names, apart, same, strict=True)
    }


def _subject(name: str, texts: int, tokens: int) -> Subject:
    if name != "bundled":
        model = RandomModel.make(name, torch.float32)
        drawn = torch.randint(SHAPES[name]["vocab_size"], (texts, tokens)).tolist()
        return Subject(
            model.model,
            drawn,
            tuple(TYPES),
            lambda file: write_gguf(file, model.entries, model.weights.tensors),
        )
    config, weights = read_config(BUNDLED), Checkpoint(BUNDLED, torch.float32)
    entries = json.loads((BUNDLED / "config.json").read_text("utf-8"))
    stored = load_file(BUNDLED / "model.safetensors")
    return Subject(
        build(config, weights),
        [_story(number, tokens) for number in range(texts)],
        BLOCKS_OF_32,
        lambda file: write_gguf(file, entries, stored),
    )


def _story(number: int, tokens: int) -> list[int]:
    """Return the first tokens of a story by the bundled model: what it computes when it is used."""
    engine = Engine.load("bundled")
    params = SamplingParams(max_tokens=tokens, temperature=0.8, seed=number, ignore_eos=True)
    request = engine.submit(OPENINGS[number % len(OPENINGS)], params)
    while engine.has_work():
        engine.step()
    return request.tokens[:tokens]


def _llama_cpp(file: Path, texts: list[list[int]]) -> Tensor:
    side = LlamaCpp(file, 1, max(map(len, texts)), threads=1, exact=True, flash=False)
    logits = torch.cat([torch.from_numpy(side.logits(text)) for text in texts])
    side.close()
    return logits


def _at_once(model: Model, text: list[int]) -> Tensor:
    """Compute a text in one pass, and return the logits after each token."""
    return _passes(model, text, len(text))


def _decoded(model: Model, text: list[int]) -> Tensor:
    """Compute a text token by token, and return the logits after each token."""
    return _passes(model, text, 1)


@torch.inference_mode()
def _passes(model: Model, text: list[int], count: int) -> Tensor:
    """Compute `count` tokens in each pass."""
    runner, size = TorchRunner(model), 16
    blocks = -(-len(text) // size)
    runner.reserve(blocks, size)
    assert runner.kv_cache is not None
    request = Request(1, text, [], SamplingParams(), block_table=list(range(blocks)), root=1)
    logits = []
    for start in range(0, len(text), count):
        batch = make_batch([Row(request, start, count, [], [0])], size, model.device)
        attention = runner.attention(model.config, runner.kv_cache, batch)
        every = torch.arange(count)
        logits.append(model.forward(batch.token_ids, batch.positions, attention, every).float())
    return torch.cat(logits)
