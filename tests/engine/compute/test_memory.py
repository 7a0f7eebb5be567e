"""Memory first: what a model needs is stated and checked before a tensor is loaded."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine import ConfigError, Engine, EngineConfig
from engine.models import loader, memory
from engine.models.byte_sizes import byte_size
from engine.models.weights.checkpoint import Checkpoint
from tests.engine.compute.gguf_files import Type, write
from tests.engine.compute.tensors import tensors_of
from tests.facts import raises_naming

CONFIG = EngineConfig(max_kv_tokens=4096)


@pytest.fixture
def directory(qwen3):
    return qwen3[0]


def available(monkeypatch, size):
    monkeypatch.setattr(memory, "available_bytes", lambda device: size)


def held_bytes(model):
    """The bytes of the tensors that a model holds, each memory counted once."""
    storages = {t.untyped_storage().data_ptr(): t for t in tensors_of(model) if t.numel() >= 48}
    return sum(tensor.nbytes for tensor in storages.values())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["qwen3", "llama", "gpt2", "qwen3-moe", "gemma4"])
def test_the_stated_memory_is_what_is_held(a_model, name, dtype):
    directory, _ = a_model(name)
    plan = loader.plan(directory, CONFIG, dtype=dtype)
    runner = Engine.load(directory, CONFIG, dtype=dtype).runner
    described, size = runner.describe(), getattr(torch, dtype).itemsize
    assert plan.weights == described["weight_bytes"] == size * described["parameters"]
    assert (plan.kv, plan.mirror) == (described["kv_bytes"], described["mirror_bytes"])
    assert plan.kv_tokens == 4096
    if dtype == "bfloat16":  # small float32 matrices have a second, packed copy
        assert 0.9 * plan.weights < held_bytes(runner._model) < 1.3 * plan.weights


@pytest.mark.parametrize("type_", [Type.F16, Type.Q8_0, Type.Q4_0])
def test_the_stated_weights_of_a_gguf_file(tmp_path, type_):
    write(tmp_path / "m.gguf", "llama", type_)
    plan = loader.plan(tmp_path / "m.gguf", CONFIG, dtype="bfloat16")
    runner, _ = loader.load(tmp_path / "m.gguf", dtype="bfloat16")
    assert plan.weights == runner.describe()["weight_bytes"]
    assert plan.is_quantized == (type_ != Type.F16)
    assert 0.9 * plan.weights < held_bytes(runner._model) < 1.3 * plan.weights


@pytest.mark.parametrize("max_kv_tokens", [64, 4096])
@pytest.mark.parametrize("name", ["gemma3", "gemma4"])
def test_sliding_layers_need_kv_for_their_windows_only(a_model, monkeypatch, name, max_kv_tokens):
    """With few blocks, window pages would free nothing, and every layer has all blocks."""
    directory, _ = a_model(name)
    config = EngineConfig(max_kv_tokens=max_kv_tokens, max_batch_size=2, token_budget=32)
    plan = loader.plan(directory, config)
    engine = Engine.load(directory, config)
    described = engine.runner.describe()
    assert plan.kv == described["kv_bytes"] == engine.runner.kv_cache.nbytes
    saves = max_kv_tokens == 4096
    assert (plan.kv < described["kv_bytes_per_token"] * max_kv_tokens) == saves
    available(monkeypatch, plan.kv)
    Engine(engine.runner, config)
    available(monkeypatch, plan.kv - 1)
    with raises_naming(ConfigError, "max_kv_tokens", "at most") as caught:
        Engine(engine.runner, config)
    advised = int(str(caught.value).rpartition("at most ")[2])
    assert max_kv_tokens * 0.7 < advised < max_kv_tokens
    Engine(engine.runner, EngineConfig(max_kv_tokens=advised, max_batch_size=2, token_budget=32))


def test_a_draft_model_is_part_of_the_plan(a_model, monkeypatch):
    (directory, _), (other, _) = a_model("qwen3"), a_model("llama")
    alone = loader.plan(directory, CONFIG)
    plan = loader.plan(directory, CONFIG, draft_model=other, draft_length=3)
    engine = Engine.load(directory, CONFIG, draft_model=other, draft_length=3)
    draft = engine.drafter.runner.describe()
    assert plan.draft.kv == draft["kv_bytes"]
    assert plan.draft.weights == draft["weight_bytes"]
    assert plan.needed >= alone.needed + draft["kv_bytes"] + draft["weight_bytes"]
    assert f"draft model {other.name} with weights" in str(plan)
    monkeypatch.setattr(Checkpoint, "get_tensor", None)
    available(monkeypatch, plan.needed - 1)  # rejected before either is loaded
    with raises_naming(ConfigError, "max_kv_tokens"):
        Engine.load(directory, CONFIG, draft_model=other, draft_length=3)


def test_a_model_that_does_not_fit_is_rejected_before_it_is_loaded_with_advice_that_fits(
    directory, monkeypatch
):
    monkeypatch.setattr(Checkpoint, "get_tensor", None)
    plan = loader.plan(directory, CONFIG)
    available(monkeypatch, plan.needed - 1)
    with raises_naming(ConfigError, byte_size(plan.needed), "max_kv_tokens", "dtype", "bfloat16"):
        Engine.load(directory, CONFIG)
    available(monkeypatch, plan.needed - plan.kv // 4)
    with raises_naming(ConfigError, "bfloat16") as caught:
        loader.plan(directory, CONFIG).check()
    advised = int(str(caught.value).partition("at most ")[2].split(",")[0])
    assert 256 <= advised < 4096
    loader.plan(directory, EngineConfig(max_kv_tokens=advised)).check()
    loader.plan(directory, CONFIG, dtype="bfloat16").check()
    available(monkeypatch, 1000)  # no false hope
    with raises_naming(ConfigError, "smaller model"):
        Engine.load(directory, CONFIG)


def test_kv_memory_that_a_restart_asks_for_is_checked_too(directory, monkeypatch):
    runner, _ = loader.load(directory)
    available(monkeypatch, 10**6)
    with raises_naming(ConfigError, "max_kv_tokens", 1 << 20):
        runner.reserve(1 << 16, 16)


def test_progress_counts_every_byte_once(directory):
    counted = []
    weights = Checkpoint(directory)
    weights.on_loaded = counted.append
    loader.build(loader.open_model(directory, "auto", "cpu").config, weights)
    assert sum(counted) == weights.weight_bytes()


@pytest.mark.parametrize(
    "files",
    [
        {"memory.max": "3000000", "memory.current": "1000000", "memory.stat": "inactive_file 500"},
        {
            "memory/memory.limit_in_bytes": "3000000",
            "memory/memory.usage_in_bytes": "1000000",
            "memory/memory.stat": "cache 7\ntotal_inactive_file 500",
        },
    ],
)
def test_the_limit_of_a_container_counts(tmp_path, files):
    (tmp_path / "memory").mkdir()
    assert memory._container_limits(tmp_path) == []
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    assert memory._container_limits(tmp_path) == [2_000_500]
    if "memory.max" in files:
        (tmp_path / "memory.max").write_text("max\n")
        assert memory._container_limits(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("dtype", "share"), [(torch.float32, 1.0), (torch.bfloat16, 0.0)])
def test_a_converted_tensor_leaves_no_pages_of_the_file_behind(tmp_path, dtype, share):
    file, shape = tmp_path / "model.safetensors", (2048, 1024)
    save_file({"matrix": torch.randn(shape)}, file)
    weights = Checkpoint(tmp_path, dtype)
    tensor = weights.load("matrix", *shape)
    assert tensor.dtype == dtype
    assert _resident(file) / file.stat().st_size == pytest.approx(share, abs=0.05)


def _resident(file):
    """Return the resident bytes of this process's mappings of a file."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if "-" in line.split()[0]:
            ours = line.endswith(str(file))
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total
