"""Files by llama.cpp's quantizer, against transformers with the same weights and llama.cpp's logits.

The tolerances for llama.cpp are measured. It rounds activations to 8 bits, which changes the logits by
2 to 4 % (root mean square). Our rounding of weights to int8 changes them by 2 to 4 %, too.
"""

import numpy as np
import pytest
import torch

from engine.compute.loader import build
from engine.compute.weights.gguf_checkpoint import GGUFCheckpoint
from engine.compute.weights.matrix import Int8Matrix
from tests.engine.compute.gguf_fixtures import (
    FIXTURES,
    LOGITS,
    NUM_LOGITS,
    distance,
    our_logits,
    rounded_to_int8,
)
from tests.engine.compute.judge import PROMPT, reference_logits


@pytest.fixture(scope="module", params=FIXTURES)
def fixture(request):
    return FIXTURES[request.param]


@pytest.fixture(scope="module")
def recorded():
    return {name: torch.from_numpy(logits) for name, logits in np.load(LOGITS).items()}


def test_the_files_hold_the_types_that_they_are_here_for(fixture):
    checkpoint = GGUFCheckpoint(fixture.file)
    assert {tensor.type.name for tensor in checkpoint._tensors.values()} >= fixture.types


def test_dequantized_logits_are_those_of_transformers_with_the_same_weights(fixture):
    expected = reference_logits(fixture.model(), PROMPT)[-NUM_LOGITS:]
    logits = our_logits(fixture.file, int8=False)
    torch.testing.assert_close(logits, expected, atol=5e-5, rtol=1e-4)


def test_int8_logits_are_those_of_transformers_with_rounded_weights(fixture):
    expected = reference_logits(rounded_to_int8(fixture.model()), PROMPT)[-NUM_LOGITS:]
    # Products of a few tokens round their activations to bfloat16.
    assert distance(our_logits(fixture.file), expected) < 0.004


def test_logits_are_close_to_llama_cpps(fixture, recorded):
    theirs = recorded[fixture.name]
    dequantized, int8 = our_logits(fixture.file, int8=False), our_logits(fixture.file)
    assert distance(dequantized, theirs) < 0.05
    assert distance(int8, theirs) < 0.07
    assert distance(int8, dequantized) < 0.05


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["qwen3-Q4_K_M", "llama-Q8_0"])
def test_half_precision_multiplies_by_the_same_int8_weights(name, dtype):
    logits = our_logits(FIXTURES[name].file, dtype)
    assert 1e-5 < distance(logits, our_logits(FIXTURES[name].file)) < 0.03
    assert GGUFCheckpoint(FIXTURES[name].file).stored_dtype() == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("int8", [True, False])
def test_the_bytes_of_the_weights_are_known_before_loading(fixture, dtype, int8):
    checkpoint = GGUFCheckpoint(fixture.file, dtype, int8=int8)
    expected = checkpoint.weight_bytes()
    loaded = []

    class Watched(GGUFCheckpoint):
        def _register(self, name, tensor):
            loaded.append(tensor)
            super()._register(name, tensor)

    watched = Watched(fixture.file, dtype, int8=int8)
    build(watched.config, watched)
    assert sum(tensor.nbytes for tensor in loaded) == expected
    assert any(isinstance(tensor, Int8Matrix) for tensor in loaded) == int8
    plain = sum(tensor.numel() for tensor in loaded) * dtype.itemsize
    assert expected < plain if int8 else expected == plain
