"""The reader of GGUF files, and what it computes from files by llama.cpp's quantizer.

The tolerances for llama.cpp are measured. It rounds activations to 8 bits, which changes the logits by
2 to 4 % (root mean square). Our rounding of weights and activations changes them by 2 to 5 %.
"""

import random
import struct

import gguf
import numpy as np
import pytest
import torch

from engine.models.loader import build
from engine.models.weights.checkpoint import CheckpointError
from engine.models.weights.gguf_blocks import READERS, read_groups
from engine.models.weights.gguf_checkpoint import GGUFCheckpoint
from engine.models.weights.gguf_file import GGUFFile
from engine.models.weights.matrix import Int8Matrix
from recorders.fixtures.record_gguf import FIXTURES, LOGITS, NUM_LOGITS, distance, our_logits
from tests.engine.compute.gguf_files import finish, write
from tests.engine.compute.judge import PROMPT, reference_logits
from tests.facts import raises_naming

LLAMA = FIXTURES["llama-Q8_0"].file
COUNTS = [0, 1, 255, 2**16, 2**31, 2**32, 2**63, 2**64 - 1]


@pytest.mark.parametrize("name", FIXTURES)
def test_fields_and_tensors_are_those_of_the_gguf_package(name):
    file, reader = GGUFFile(FIXTURES[name].file), gguf.GGUFReader(FIXTURES[name].file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert file.fields == {k: v for k, v in fields.items() if not k.startswith("GGUF.")}
    assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
    for expected in reader.tensors:
        tensor = file.tensors[expected.name]
        assert tensor.type == expected.tensor_type
        assert tensor.shape == tuple(expected.shape.tolist()[::-1])
        assert tensor.numel() == expected.n_elements
        assert bytes(tensor.data) == expected.data.tobytes()


def test_every_kind_of_metadata_is_read(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    values = {
        "uint8": 200, "int8": -3, "uint16": 60_000, "int16": -300, "uint32": 2**32 - 1,
        "int32": -70_000, "uint64": 2**63, "int64": -(2**40), "float32": 0.5, "float64": 0.1,
        "bool": True, "string": "é",
    }  # fmt: skip
    for kind, value in values.items():
        getattr(writer, f"add_{kind}")(kind, value)
    writer.add_array("strings", ["a", "", "é"])
    writer.add_array("floats", [0.5, -2.0])
    finish(writer)
    fields = GGUFFile(tmp_path / "m.gguf").fields
    expected = values | {"strings": ["a", "", "é"], "floats": [0.5, -2.0]}
    assert fields == expected | {"general.architecture": "llama"}


def _mutations(data, count):
    """Bytes changed, removed, inserted or replaced by counts, mostly in the header's structure."""
    rng = random.Random(18)
    header = data.rfind(b"output_norm.weight") + 60
    for number in range(count):
        changed = bytearray(data)
        near = [range(600), range(header - 1500, header), range(header)]
        place = rng.choice(rng.choice(near))
        match number % 5:
            case 0:
                changed[place] = rng.randrange(256)
            case 1:
                del changed[rng.randrange(len(data)) :]
            case 2:
                changed[place : place + 8] = struct.pack("<Q", rng.choice(COUNTS))
            case 3:
                del changed[place : place + rng.randint(1, 16)]
            case 4:
                changed[place:place] = rng.randbytes(rng.randint(1, 16))
        yield bytes(changed)


def test_any_damage_is_one_error(tmp_path, soak):
    file, rejected, count = tmp_path / "m.gguf", 0, 300 if soak else 60
    for data in _mutations(LLAMA.read_bytes(), count):
        file.write_bytes(data)
        try:
            checkpoint = GGUFCheckpoint(file)
            checkpoint.weight_bytes()
            build(checkpoint.config, checkpoint).prepare(64)
        except CheckpointError as error:
            rejected += 1
            assert str(file) in str(error)
            assert len(str(error)) < 1000
    assert count * 2 / 3 < rejected < count  # some only change a value


TYPES = LLAMA.read_bytes().index(b"tokenizer.ggml.token_type") + 25 + 8  # the length of an array
QUERIES = LLAMA.read_bytes().index(b"blk.0.attn_q.weight") + 19 + 4 + 2 * 8  # the type of a tensor
I8 = int(gguf.GGMLQuantizationType.I8)  # takes less room than Q8_0, which is stored there
WRONG = [
    *((at, struct.pack("<Q", count), []) for at in (8, 16) for count in (2**32, 2**63, 2**64 - 1)),
    *((TYPES, struct.pack("<Q", count), []) for count in (2**24, 2**24 + 1, 2**40)),
    (0, b"GGML", ["GGUF"]),
    (4, struct.pack("<I", 1), [1]),
    (4, struct.pack(">I", 3), ["little-endian"]),
    (QUERIES, bytes([I8]), ["blk.0.attn_q.weight", "I8", "Q4_K_M"]),
    (QUERIES, bytes([250]), ["blk.0.attn_q.weight", 250]),
]


@pytest.mark.parametrize(("at", "change", "facts"), WRONG)
def test_huge_counts_and_other_formats_versions_and_types_are_named(tmp_path, at, change, facts):
    data = bytearray(LLAMA.read_bytes())
    data[at : at + len(change)] = change
    (tmp_path / "m.gguf").write_bytes(data)
    with raises_naming(CheckpointError, tmp_path / "m.gguf", *facts):
        GGUFCheckpoint(tmp_path / "m.gguf")


def test_weights_that_are_not_finite_are_named(tmp_path):
    data = bytearray(LLAMA.read_bytes())
    tensor = next(t for t in gguf.GGUFReader(LLAMA).tensors if t.name == "blk.1.ffn_up.weight")
    data[tensor.data_offset : tensor.data_offset + 2] = np.float16("nan").tobytes()  # a scale
    (tmp_path / "m.gguf").write_bytes(data)
    checkpoint = GGUFCheckpoint(tmp_path / "m.gguf")
    with raises_naming(CheckpointError, "model.layers.1.mlp.up_proj.weight", "NaN"):
        build(checkpoint.config, checkpoint)


@pytest.mark.parametrize("type_", READERS)
def test_blocks_are_those_of_the_gguf_package(type_):
    size, _ = READERS[type_]
    data = np.random.default_rng(0).integers(0, 256, (6, 50 * size), dtype=np.uint8)
    found = read_groups(torch.from_numpy(data), type_).dequantize()
    with np.errstate(all="ignore"):  # scales may be infinite
        np.testing.assert_array_equal(found, gguf.quants.dequantize(data, type_))


def test_plain_tensors_are_views_of_the_file(tmp_path):
    write(tmp_path / "m.gguf", "qwen3")
    checkpoint = GGUFCheckpoint(tmp_path / "m.gguf", torch.float32)
    stored = checkpoint._tensors["model.embed_tokens.weight"]
    loaded = checkpoint.load_matrix({"model.embed_tokens.weight": 401}, 64)
    assert loaded.data_ptr() == np.frombuffer(stored.data, np.uint8).ctypes.data


@pytest.fixture(scope="module", params=FIXTURES)
def fixture(request):
    return FIXTURES[request.param]


@pytest.fixture(scope="module")
def recorded():
    return {name: torch.from_numpy(logits) for name, logits in np.load(LOGITS).items()}


def test_dequantized_logits_are_those_of_transformers_with_the_same_weights(fixture):
    expected = reference_logits(fixture.model(), PROMPT)[-NUM_LOGITS:]
    logits = our_logits(fixture.file, int8=False)
    torch.testing.assert_close(logits, expected, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize(("int4", "tolerance"), [(True, 0.035), (False, 0.004)])
def test_quantized_logits_are_those_of_transformers_with_rounded_weights(fixture, int4, tolerance):
    """Int4 products are rounded to bfloat16, and a last bit may round an activation to another step."""
    expected = reference_logits(fixture.rounded(int4), PROMPT)[-NUM_LOGITS:]
    assert distance(our_logits(fixture.file, int4=int4), expected) < tolerance


def test_logits_are_close_to_llama_cpps(fixture, recorded):
    theirs = recorded[fixture.name]
    dequantized, quantized = our_logits(fixture.file, int8=False), our_logits(fixture.file)
    assert distance(dequantized, theirs) < 0.05
    assert distance(quantized, theirs) < 0.07
    assert distance(quantized, dequantized) < 0.05


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("int8", [True, False])
def test_the_bytes_of_the_weights_are_known_before_loading(fixture, dtype, int8):
    loaded = []

    class Watched(GGUFCheckpoint):
        def _register(self, name, tensor):
            loaded.append(tensor)
            super()._register(name, tensor)

    watched = Watched(fixture.file, dtype)
    watched.int8 = int8
    expected = watched.weight_bytes()
    build(watched.config, watched)
    assert sum(tensor.nbytes for tensor in loaded) == expected
    assert any(isinstance(tensor, Int8Matrix) for tensor in loaded) == int8
    assert watched.stored_dtype() == torch.bfloat16
    plain = sum(tensor.numel() for tensor in loaded) * dtype.itemsize
    assert expected < plain if int8 else expected == plain
