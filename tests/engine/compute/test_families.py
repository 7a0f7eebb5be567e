"""What sets families apart: weights of features that are off, tied layers, old files, names."""

import json
import shutil
from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import Engine
from engine.core.compute.model import kv_bytes_per_token
from engine.models.config_file import SUPPORTED, parse_config, read_config
from engine.models.kv_sizes import kv_sizes
from engine.models.weights.checkpoint import CheckpointError
from engine.models.weights.gguf_architectures import ARCHITECTURES
from tests.engine.compute.driver import Driver
from tests.engine.compute.gguf_files import finish
from tests.engine.compute.judge import departs
from tests.engine.compute.models import MODELS
from tests.facts import raises_naming
from tests.lazy import transformers


def family(**switches):
    """The configuration with these switches of its family changed."""
    return lambda config: replace(config, family=replace(config.family, **switches))


def entries(**changes):
    """The configuration with these entries changed."""
    return lambda config: replace(config, **changes)


NO_BIAS, NO_HEAD_NORM = entries(qkv_bias=False), family(qk_norm=None)


@pytest.mark.parametrize(
    ("name", "change"),
    [("qwen2-untied", NO_BIAS), ("qwen3", NO_HEAD_NORM), ("olmo2", NO_HEAD_NORM)],
)
def test_weights_of_a_feature_that_is_off_are_an_error(a_model, name, change):
    with raises_naming(CheckpointError, "model.layers.0.self_attn"):
        Driver(a_model(name)[0], change)


@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_an_output_layer_in_a_tied_model_s_file_counts(a_model, name, tmp_path):
    """As in transformers; where it is the embedding once more, it takes no memory."""
    directory, model = a_model(name)
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    weights = load_file(directory / "model.safetensors")
    embedding = weights["transformer.wte.weight" if name == "gpt2" else "model.embed_tokens.weight"]
    sizes = []
    for output in (embedding, embedding.flip(0)):
        changed = weights | {"lm_head.weight": output.contiguous().clone()}
        save_file(changed, tmp_path / "model.safetensors", metadata={"format": "pt"})
        judge = type(model).from_pretrained(tmp_path)
        assert not departs(tmp_path, judge)
        sizes.append(Driver(tmp_path).runner.describe()["parameters"])
    assert sizes[1] - sizes[0] == embedding.numel()


def test_projections_of_shared_kv_in_a_file_are_neither_read_nor_counted(a_model, tmp_path):
    """Published files of Gemma 4 have them."""
    directory, model = a_model("gemma4")
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    unread = {"model.layers.4.self_attn.k_norm.weight": torch.ones(32)}
    weights = load_file(directory / "model.safetensors") | unread
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert not departs(tmp_path, model)
    described = Driver(tmp_path).runner.describe()
    assert described["weight_bytes"] == 4 * described["parameters"]
    # Of five layers, three have KV: two with two heads of 16 values, one with two heads of 32.
    assert described["kv_bytes_per_token"] == 4 * 2 * (2 * 2 * 16 + 2 * 32)


class TestGPT2:
    @pytest.fixture
    def copy(self, a_model, tmp_path):
        """GPT-2 as it was first published: no prefix, and the masks among the weights."""
        directory, model = a_model("gpt2")
        tensors = load_file(directory / "model.safetensors")
        tensors = {name.removeprefix("transformer."): t.clone() for name, t in tensors.items()}
        for layer in range(3):
            tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 256, 256).tril()
            tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
        save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
        shutil.copy(directory / "config.json", tmp_path)
        return tmp_path, model, tensors

    def test_the_first_files(self, copy):
        directory, model, _ = copy
        assert not departs(directory, model)

    @pytest.mark.parametrize(
        ("entries", "facts"),
        [
            ({"activation_function": "relu"}, ["activation_function", "relu"]),
            ({"scale_attn_weights": False}, ["scale_attn_weights"]),
            ({"scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse_layer_idx"]),
            ({"add_cross_attention": True}, ["add_cross_attention"]),
            ({"n_head": 5}, ["n_embd", 48, "n_head", 5]),
            ({"n_head": 0}, ["num_heads", 1]),
        ],
    )
    def test_what_is_not_supported_is_named(self, copy, entries, facts):
        file = copy[0] / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | entries))
        with raises_naming(CheckpointError, *facts):
            read_config(copy[0])


def test_every_family_is_compared_with_transformers():
    assert {kind for kind, _ in MODELS.values()} == SUPPORTED


SELDOM = {"architectures": ["BertModel", "LlamaForCausalLM"]}


@pytest.mark.parametrize(
    ("entries", "named"),
    [({"architectures": ["BloomForCausalLM"]}, "BloomForCausalLM"), (SELDOM, "BertModel")]
    + [({"architectures": wrong}, "architectures") for wrong in ([], None, "LlamaForCausalLM")]
    + [({}, "architectures")],
)
def test_an_unsupported_architecture_is_named_with_those_there_are(tmp_path, entries, named):
    (tmp_path / "config.json").write_text(json.dumps(entries))
    with raises_naming(CheckpointError, tmp_path, named, *SUPPORTED):
        Engine.load(tmp_path)


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "bloom"])
def test_an_unsupported_architecture_of_a_gguf_file_is_named(tmp_path, name):
    finish(gguf.GGUFWriter(file := tmp_path / "m.gguf", name))
    with raises_naming(CheckpointError, file, name, *ARCHITECTURES):
        Engine.load(file)


CONV = {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]}


@pytest.mark.parametrize(
    ("kind", "entries", "facts"),
    [
        ("Qwen3_5Text", {"num_hidden_layers": 32}, [24, 32, "linear_attention", "Qwen3-8B"]),
        ("Qwen3_5Moe", {}, [30, 40, "linear_attention", "Qwen3-30B-A3B"]),
        ("Lfm2", CONV, [1, 2, "conv"]),
        ("Mamba", {"hidden_size": 1024}, ["most or all", "Qwen3-0.6B"]),
    ],
)
def test_recurrent_layers_are_rejected_with_a_model_that_works(kind, entries, facts):
    config = getattr(transformers, f"{kind}Config")(**entries).to_dict()
    with raises_naming(CheckpointError, f"{kind}ForCausalLM", "docs/models.md", *facts):
        parse_config(config | {"architectures": [f"{kind}ForCausalLM"]})


@pytest.mark.parametrize(("name", "kind"), [("qwen35", "ssm"), ("lfm2", "shortconv")])
def test_recurrent_layers_of_a_gguf_file_are_rejected(tmp_path, name, kind):
    writer = gguf.GGUFWriter(file := tmp_path / "m.gguf", name)
    writer.add_block_count(32)
    for tensor in (f"blk.0.{kind}_a", f"blk.2.{kind}.conv", f"blk.2.{kind}_d", "blk.3.attn_q"):
        writer.add_tensor(f"{tensor}.weight", np.ones(4, np.float32))
    finish(writer)
    with raises_naming(CheckpointError, file, name, 2, 32, kind):
        Engine.load(file)


def test_latent_attention_keeps_one_vector_per_token_and_rejects_experts(a_model):
    directory, model = a_model("deepseek-v2")
    config = read_config(directory)
    kept = model.config.kv_lora_rank + model.config.qk_rope_head_dim
    assert kv_bytes_per_token(config, torch.float32) == config.num_layers * kept * 4
    assert kv_sizes(model.config.to_dict()).per_token("float32") == config.num_layers * kept * 4
    entries = json.loads((directory / "config.json").read_text())
    with raises_naming(CheckpointError, "first_k_dense_replace", 1, 3):
        parse_config(entries | {"first_k_dense_replace": 1})
    with raises_naming(CheckpointError, "kv_lora_rank", 0):
        parse_config(entries | {"kv_lora_rank": 0})
