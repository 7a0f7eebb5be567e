"""Which type a model is computed in, and that weights, KV and products have it."""

import shutil
from typing import get_args

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import ConfigError, Engine, EngineConfig, SamplingParams
from engine.core.compute.device import (
    CPU,
    Device,
    Precision,
    is_native,
    resolve_device,
    resolve_dtype,
)
from engine.models.loader import load
from engine.models.weights.checkpoint import Checkpoint, CheckpointError
from engine.models.weights.gguf_checkpoint import GGUFCheckpoint
from tests.engine.compute.gguf_files import Type, write
from tests.engine.compute.tensors import tensors_of
from tests.engine.workloads import finish
from tests.facts import raises_naming

HALVES = [torch.bfloat16, torch.float16]
CONFIG = EngineConfig(max_kv_tokens=64)


@pytest.fixture
def cpu_with(monkeypatch):
    """Give the CPU exactly these features, as torch reports them."""

    def give(*features):
        found = {name: name in features for name in ("avx2", "avx512_bf16", *features)}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)

    return give


@pytest.fixture
def stored(tmp_path, qwen3):
    """Save a small model whose weights have this type."""

    def make(dtype):
        shutil.copytree(qwen3[0], tmp_path, dirs_exist_ok=True)
        file = tmp_path / "model.safetensors"
        tensors = {name: tensor.to(dtype) for name, tensor in load_file(file).items()}
        save_file(tensors, file)
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("features", "native"),
    [
        ((), set()),
        (("avx2", "f16c"), set()),  # f16c only converts
        (("avx512_bf16",), {torch.bfloat16}),
        (("amx_bf16",), {torch.bfloat16}),
        (("avx512_bf16", "avx512_fp16"), {torch.bfloat16, torch.float16}),
        (("fp16_arith",), {torch.float16}),
        (("fp16_arith", "bf16"), {torch.bfloat16, torch.float16}),
    ],
)
def test_auto_is_the_stored_type_where_the_cpu_computes_it(cpu_with, features, native):
    cpu_with(*features)
    for dtype in HALVES:
        assert is_native(dtype, CPU) == (dtype in native)
        expected = dtype if dtype in native else torch.float32
        assert resolve_dtype("auto", dtype, CPU) == expected
        assert resolve_dtype(str(dtype).removeprefix("torch."), torch.float32, CPU) == dtype
    assert resolve_dtype("auto", torch.float32, CPU) == torch.float32


@pytest.mark.parametrize(("capability", "native"), [((7, 5), False), ((8, 0), True)])
def test_old_gpus_have_no_bfloat16(monkeypatch, capability, native):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    device = torch.device("cuda")
    assert is_native(torch.bfloat16, device) == native
    assert is_native(torch.float16, device)


def test_the_stored_type_of_a_directory_or_a_gguf_file(stored, tmp_path):
    for dtype in (torch.float32, *HALVES):
        assert Checkpoint(stored(dtype)).stored_dtype() == dtype
    types = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "Q8_0": "bfloat16"}
    for type_, dtype in types.items():
        write(tmp_path / f"{type_}.gguf", "llama", Type[type_])
        assert GGUFCheckpoint(tmp_path / f"{type_}.gguf").stored_dtype() == getattr(torch, dtype)


def test_auto_decides_when_a_model_is_loaded(stored, cpu_with):
    directory = stored(torch.bfloat16)
    cpu_with()
    assert load(directory)[0].describe()["dtype"] == "float32"
    cpu_with("avx512_bf16")
    assert load(directory)[0].describe()["dtype"] == "bfloat16"


def test_the_bundled_model_is_float32_on_every_machine(cpu_with):
    """Its file holds float16. The lessons' outputs must not depend on the CPU."""
    cpu_with("avx512_fp16", "avx512_bf16")
    assert load("bundled")[0].describe()["dtype"] == "float32"
    assert load("bundled", dtype="bfloat16")[0].describe()["dtype"] == "bfloat16"


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_weights_and_kv_are_kept_and_computed_in_half_precision(stored, name):
    dtype = getattr(torch, name)
    engine = Engine.load(stored(torch.float32), CONFIG, dtype=name)
    described = engine.runner.describe()
    assert (described["dtype"], described["device"]) == (name, "cpu")
    assert described["kv_bytes_per_token"] == 2 * 3 * 2 * 16 * 2
    assert engine.runner.kv_cache.tensor.dtype == dtype
    assert engine.runner.kv_format().dtype == name
    matrices = [t for t in tensors_of(engine.runner._model) if t.numel() >= 48 * 48]
    assert len(matrices) >= 1 + 3 * 4  # the embedding, and four in each layer
    assert {matrix.dtype for matrix in matrices} == {dtype}
    request = engine.submit([5, 6, 7], SamplingParams(max_tokens=3, ignore_eos=True))
    finish(engine)
    assert len(request.output_ids) == 3


def edit(file, change):
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def test_values_that_float16_cannot_hold_are_an_error(stored):
    directory = stored(torch.float32)
    edit(directory / "model.safetensors", lambda t: t["model.norm.weight"][3].fill_(1e6))
    with raises_naming(CheckpointError, "model.norm.weight", "float16", "infinity", "float32"):
        load(directory, dtype="float16")
    load(directory, dtype="bfloat16")


def test_logits_that_overflow_end_the_request_with_a_reason(stored):
    directory = stored(torch.float32)
    for name in ("model.norm.weight", "model.embed_tokens.weight"):
        edit(directory / "model.safetensors", lambda t, name=name: t[name].fill_(6e4))
    engine = Engine.load(directory, CONFIG, dtype="float16")
    request = engine.submit([5], SamplingParams(max_tokens=1))
    engine.step()
    assert request.error is not None
    assert "not finite" in request.error
    assert "float16" in request.error


def test_an_unknown_precision_or_a_missing_device_is_rejected_with_the_choices(monkeypatch):
    for dtype in ("int8", "half", "", "torch.float32"):
        with raises_naming(ConfigError, "dtype", *get_args(Precision), dtype):
            load("bundled", dtype=dtype)
    with raises_naming(ConfigError, "device", *get_args(Device), "tpu"):
        load("bundled", device="tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.mps, "is_available", lambda: False, raising=False)
    with raises_naming(ConfigError, "device", "cuda", "not available", "cpu"):
        load("bundled", device="cuda")
    assert resolve_device("cpu") == CPU
