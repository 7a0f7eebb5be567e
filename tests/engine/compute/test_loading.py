"""Loading: what a directory may look like, and what is said when it is wrong."""

import json
import shlex
import shutil
import struct
import threading
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import ConfigError, Engine, EngineConfig, SamplingParams
from engine.core.compute import torch_runner
from engine.core.request import Request
from engine.core.runner import Row
from engine.core.tokenizer import TokenizerError
from engine.models import threads
from engine.models.loader import load
from engine.models.weights.checkpoint import CheckpointError
from tests.engine.compute.judge import PROMPT
from tests.engine.compute.models import save
from tests.facts import raises_naming


@pytest.fixture
def copy(qwen3, tmp_path):
    """A model directory that the test may damage."""
    directory = tmp_path / "model"
    shutil.copytree(qwen3[0], directory)
    return directory


def edit_weights(directory, change):
    file = directory / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def test_load_gives_a_runner_and_its_tokenizer(copy):
    runner, tokenizer = load(copy)
    described = json.loads(json.dumps(runner.describe()))
    parameters = sum(t.numel() for t in load_file(copy / "model.safetensors").values())
    assert (described["parameters"], described["weight_bytes"]) == (parameters, 4 * parameters)
    assert (described["name"], described["layers"], described["kv_heads"]) == ("model", 3, 2)
    assert described["kv_bytes_per_token"] == 2 * 3 * 2 * 16 * 4
    assert runner.max_context == described["max_context"] == 256
    assert runner.vocab_size == tokenizer.vocab_size == 97
    load(str(copy))


def test_a_loaded_runner_serves_engines_of_any_size(copy):
    runner, _ = load(copy)
    runner.reserve(1, 16)
    assert runner.max_context == 256
    request = Request(id=1, tokens=PROMPT[:16], texts=[], params=SamplingParams(), block_table=[0])
    first = runner.run([Row(request, 0, 16, [], [0])], [])
    runner.reserve(16, 16)
    assert runner.run([Row(request, 0, 16, [], [0])], [])[0][0].ids == first[0][0].ids
    request.tokens, request.block_table = [1] * 256, list(range(16))
    assert len(runner.run([Row(request, 0, 256, [], [0])], [])[0][0].ids) == 1
    with raises_naming(ConfigError, "max_kv_tokens"):
        Engine.load(copy, EngineConfig(max_kv_tokens=2**44))


def test_kv_memory_is_reserved_once_and_freed_before_another_engine_reserves_its_own(
    copy, monkeypatch
):
    reserved = []

    class Counted(torch_runner.KVCache):
        def __init__(self, config, num_blocks, block_size, *place, **pages):
            assert not any(earlier() for earlier, _ in reserved), "reserved beside an earlier one"
            super().__init__(config, num_blocks, block_size, *place, **pages)
            reserved.append((weakref.ref(self), num_blocks * block_size))

    monkeypatch.setattr(torch_runner, "KVCache", Counted)
    engine = Engine.load(copy, EngineConfig(max_kv_tokens=64))
    assert [tokens for _, tokens in reserved] == [64]
    Engine(engine.runner, EngineConfig(max_kv_tokens=32), tokenizer=engine.tokenizer)
    assert [tokens for _, tokens in reserved] == [64, 32]


def test_a_missing_shard_is_named(tmp_path):
    save(tmp_path, "llama", max_shard_size="40KB")
    missing = next(tmp_path.glob("*-00002-*.safetensors"))
    missing.unlink()
    with raises_naming(CheckpointError, missing.name):
        load(tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 100, 4000, -1, None])
def test_a_truncated_file_or_a_header_of_nonsense_is_named(copy, keep):
    file = copy / "model.safetensors"
    nonsense = struct.pack("<Q", 2**62) + b"x" * 50
    file.write_bytes(nonsense if keep is None else file.read_bytes()[:keep])
    with raises_naming(CheckpointError, file):
        load(copy)


NORM, UP = "model.norm.weight", "model.layers.1.mlp.up_proj.weight"
BIAS = "model.layers.0.self_attn.q_proj.bias"


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda t: t.pop(NORM), [NORM]),
        (lambda t: t.update({NORM: torch.ones(7)}), [NORM, [7], [48]]),
        (lambda t: t.update({BIAS: torch.ones(96)}), [BIAS]),
        (lambda t: t[UP][3, 4].fill_(float("nan")), [UP, "NaN"]),
        (lambda t: t.update({NORM: torch.ones(48, dtype=torch.int8)}), [NORM, "I8"]),
    ],
)
def test_weights_that_do_not_fit_the_configuration(copy, change, facts):
    edit_weights(copy, change)
    with raises_naming(CheckpointError, *facts):
        load(copy)


def windows(kind, layers, **entries):
    return {"use_sliding_window": True, "layer_types": [f"{kind}_attention"] * layers} | entries


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(copy, file):
    (copy / file).unlink()
    with raises_naming(TokenizerError if file == "tokenizer.json" else CheckpointError, file):
        load(copy)


def test_pickles_are_refused_with_the_command_that_converts_them(copy):
    weights = load_file(copy / "model.safetensors")
    torch.save(weights, copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    with raises_naming(CheckpointError, copy, "pytorch_model") as caught:
        load(copy)
    exec(shlex.split(str(caught.value).split("`")[1])[2])
    assert load(copy)[0].describe()["parameters"] == sum(t.numel() for t in weights.values())


@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": 3}'])
def test_damaged_json_is_named(copy, file, content):
    (copy / file).write_text(content)
    with raises_naming(CheckpointError, file):
        load(copy)


def test_no_such_directory():
    with raises_naming(CheckpointError, "no-such-model", "bundled"):
        load("no-such-model")


def test_threads_are_one_or_those_of_the_environment_or_the_argument(monkeypatch):
    monkeypatch.delenv(threads.ENVIRONMENT_VARIABLE, raising=False)
    assert threads.set_threads() == 1
    monkeypatch.setenv(threads.ENVIRONMENT_VARIABLE, "2")
    assert threads.set_threads() == torch.get_num_threads() == 2
    assert threads.set_threads(1) == torch.get_num_threads() == 1
    seen = []  # it holds in other threads too: the server's engine runs in one of its own
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [1]
    for value in ("0", "-1", "many"):
        monkeypatch.setenv(threads.ENVIRONMENT_VARIABLE, value)
        with raises_naming(ValueError, "UNDERGLASS_THREADS", value):
            threads.set_threads()
    with raises_naming(ValueError, "threads", 1, 0):
        threads.set_threads(0)
