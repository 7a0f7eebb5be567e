"""Files by llama.cpp's own quantizer and the logits that llama.cpp computes from them.

The files are in `tests/fixtures/gguf`, so the tests need no llama.cpp. To make them again:

    python -m tests.engine.compute.gguf_fixtures

The models are those of `gguf_files.make`, with random weights. K-quants need rows of 256 values, and a
file should stay below 300 KB, hence one layer. Embedding and output layer are tied.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch

from benchmarks.llama_cpp_system import LlamaCpp, quantize
from engine.core.compute.torch_runner import TorchRunner
from engine.core.request import Request
from engine.core.runner import Row
from engine.core.sampling_params import SamplingParams
from engine.models.loader import build
from engine.models.weights.gguf_checkpoint import GGUFCheckpoint
from tests.engine.compute import gguf_files
from tests.engine.compute.judge import PROMPT

DIRECTORY = Path(__file__).parents[2] / "fixtures" / "gguf"
LOGITS = DIRECTORY / "logits.npz"
NUM_LOGITS = 4  # recorded for the last tokens of PROMPT
_WIDE = dict(hidden_size=256, intermediate_size=256, num_hidden_layers=1)
_WIDE |= dict(num_attention_heads=4, num_key_value_heads=1, head_dim=64)


@dataclass(frozen=True)
class Fixture:
    """kind: of `gguf_files.KINDS`; ftype: llama.cpp's mixture of types, such as Q4_K_M."""

    kind: str
    ftype: str
    sizes: dict
    types: set

    @property
    def name(self):
        return f"{self.kind}-{self.ftype}"

    @property
    def file(self):
        return DIRECTORY / f"{self.name}.gguf"

    def model(self):
        """The transformers model with the weights of the file, dequantized by the gguf package."""
        model = gguf_files.make(self.kind, tied=True, **self.sizes)
        stored = {tensor.name: tensor for tensor in gguf.GGUFReader(self.file).tensors}
        for name, tensor in model.state_dict().items():
            if name != "lm_head.weight":
                found = stored[gguf_files.gguf_name(model, name)]
                values = gguf.quants.dequantize(found.data, found.tensor_type).copy()
                tensor.copy_(gguf_files.reorder(model, name, torch.from_numpy(values), back=True))
        return model

    def rounded(self, int4):
        """The model as the engine holds it: int8 matrices and the inputs of their products rounded."""
        model, checkpoint = self.model(), GGUFCheckpoint(self.file)
        for name, module in model.named_modules():
            kept = (
                int4 and f"{name}.weight" in checkpoint and checkpoint.stays_int4(f"{name}.weight")
            )
            if isinstance(module, torch.nn.Linear) and not kept:
                # A new parameter: the embedding, which is tied, is looked up in the file.
                module.weight = torch.nn.Parameter(_rounded(module.weight))
                module.register_forward_pre_hook(lambda _, inputs: (_rounded(inputs[0]),))
        return model


FIXTURES = {
    fixture.name: fixture
    for fixture in (
        Fixture("qwen3", "Q4_K_M", _WIDE, {"Q4_K", "Q6_K"}),
        Fixture("llama", "Q3_K_M", _WIDE, {"Q3_K", "Q4_K", "Q5_K"}),
        Fixture("qwen3", "Q2_K", _WIDE, {"Q2_K", "Q3_K", "Q4_K"}),
        Fixture("llama", "IQ4_XS", _WIDE, {"IQ4_XS", "Q4_K", "Q5_K"}),
        Fixture("llama", "Q8_0", {}, {"Q8_0"}),
        Fixture("qwen2", "Q4_0", {}, {"Q4_0"}),
        Fixture("qwen2", "Q5_1", {}, {"Q5_1"}),
    )
}


def _rounded(rows):
    """127 steps from 0 to the largest value of each row."""
    step = rows.abs().amax(dim=-1, keepdim=True) / 127
    return (rows / step).round() * step


def llama_cpp_logits(file):
    """llama.cpp's logits after the last tokens of PROMPT."""
    model = LlamaCpp(file, 1, len(PROMPT), threads=1, exact=True, flash=False)
    logits = model.logits(PROMPT)[-NUM_LOGITS:]
    model.close()
    return logits


def our_logits(file, dtype=torch.float32, tokens=PROMPT, int8=True, int4=True):
    """Our logits after the last of `tokens`."""
    checkpoint = GGUFCheckpoint(file, dtype)
    checkpoint.int8, checkpoint.int4 = int8, int4
    runner = TorchRunner(build(checkpoint.config, checkpoint))
    runner.reserve(16, 16)
    seen = []
    forward = runner._model.forward
    last = torch.arange(len(tokens) - NUM_LOGITS, len(tokens))
    runner._model.forward = lambda *a: seen.append(forward(*a[:3], last)) or seen[-1][-1:]
    request = Request(1, tokens, [], SamplingParams(), block_table=list(range(16)), root=1)
    runner.run([Row(request, 0, len(tokens), [], [0])], [])
    return seen[0]


def distance(logits, expected):
    """Root mean square of the difference, as a share of the logits' spread."""
    return float((logits - expected).square().mean().sqrt() / expected.std())


def write_fixtures() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    recorded = {}
    for name, fixture in FIXTURES.items():
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / "f32.gguf"
            gguf_files.write(source, fixture.kind, tied=True, **fixture.sizes)
            # Smaller than the default, Q6_K.
            embedding = gguf_files.Type.Q4_K if fixture.sizes else -1
            quantize(source, fixture.file, fixture.ftype, embedding=embedding)
        recorded[name] = llama_cpp_logits(fixture.file)
        tensors = gguf.GGUFReader(fixture.file).tensors
        sys.stdout.write(
            f"{name}: {fixture.file.stat().st_size:,} bytes, "
            f"{sorted({tensor.tensor_type.name for tensor in tensors})}\n"
        )
    np.savez_compressed(LOGITS, **recorded)


if __name__ == "__main__":
    write_fixtures()
