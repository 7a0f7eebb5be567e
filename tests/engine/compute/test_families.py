"""What sets the families apart is really computed: without it the logits are others."""

import json
import re
import shutil
from dataclasses import replace

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import Engine
from engine.models.config import LlamaConfig
from engine.models.config_file import SUPPORTED, read_config
from engine.models.families import Norms
from engine.models.weights.checkpoint import Checkpoint, CheckpointError
from engine.models.weights.gguf_architectures import ARCHITECTURES
from tests.engine.compute.driver import BLOCK_SIZE, Driver
from tests.engine.compute.gguf_files import finish
from tests.engine.compute.judge import PROMPT, departs, last_logits, reference_logits
from tests.engine.compute.models import MODELS
from tests.facts import raises_naming


def family(**switches):
    """The configuration with these switches of its family changed."""
    return lambda config: replace(config, family=replace(config.family, **switches))


def entries(**changes):
    """The configuration with these entries changed."""
    return lambda config: replace(config, **changes)


def ropes(**changes):
    """The configuration with these entries of each layer's rotation changed."""
    return lambda config: replace(
        config, ropes=tuple(rope and replace(rope, **changes) for rope in config.ropes)
    )


def norms_after(config):
    """Without the norms behind attention and feed-forward network, where there are others."""
    norms = config.family.norms
    kept = Norms("input_layernorm", None, "pre_feedforward_layernorm", None)
    return family(norms=kept if None not in norms else norms)(config)


NO_BIAS, NO_HEAD_NORM = entries(qkv_bias=False), family(qk_norm=None)
# What sets families and models apart. Each changes the configuration of some models.
SWITCHES = {
    "tied": entries(tied_embeddings=True),
    "no window": entries(windows=(None,) * 3),
    "window everywhere": lambda config: replace(config, windows=(config.window,) * 3),
    "eps": entries(norm_eps=0.1),
    "theta": lambda c: ropes(theta=3 * (c.ropes[0] or c.ropes[1]).theta)(c),
    "scaling": ropes(scaling=None),
    "partial rotation": ropes(size=8, scaling=None),
    "rotation everywhere": lambda config: replace(config, ropes=(config.ropes[0],) * 3),
    # The layers with a window rotate as the others do, and the others as they do.
    "swapped ropes": lambda c: replace(c, ropes=(c.ropes[1] or c.ropes[0], c.ropes[0], c.ropes[2])),
    "qkv bias": NO_BIAS,
    "output bias": entries(output_bias=False),
    "mlp bias": entries(mlp_bias=False),
    "query scale": entries(query_scale=1.0),
    "activation": entries(activation="silu"),
    "renormalised": lambda c: replace(c, norm_topk_prob=bool(c.num_experts) > c.norm_topk_prob),
    "experts": lambda c: replace(c, experts_per_token=min(c.experts_per_token, 1)),
    "head norm": NO_HEAD_NORM,
    "norm offset": family(norm_offset=0.0),
    "embedding scale": family(scaled_embedding=False),
    "norms after": norms_after,
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_switching_a_feature_off_is_noticed(a_model, switch, monkeypatch):
    # Otherwise a bias left over is an error, and an output layer in the file is used; see below.
    monkeypatch.setattr(Checkpoint, "check_all_loaded", lambda self: None)
    monkeypatch.setattr(
        Checkpoint,
        "__contains__",
        lambda self, name: name in self._location and name != "lm_head.weight",
    )
    changed = []
    for name in MODELS:
        directory, model = a_model(name)
        config = read_config(directory)
        if name.startswith("gpt2") and switch not in ("tied", "eps"):
            continue  # has none of the others
        if (name, switch) == ("llama-dynamic", "scaling"):
            continue  # see test_rope_scaling.py
        if SWITCHES[switch](config) != config:
            assert departs(directory, model, SWITCHES[switch]), name
            changed.append(name)
    assert changed, "no model has it"


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


# Together they have every weight that a supported model can have.
ALL_WEIGHTS = {
    *("gpt2-untied", "llama-biases", "gemma3-untied-biases", "gemma3-with-vision", "qwen3-moe"),
    *("phi3", "smollm3-untied-biases", "olmo2"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in ALL_WEIGHTS else pytest.mark.soak) for n in MODELS],
)
def test_every_weight_matters(a_model, name, monkeypatch):
    """Zeros in the place of any weight or bias of a layer, and of those outside, are noticed."""
    directory, _ = a_model(name)
    config = read_config(directory)
    prefix = config.family.text_prefix if isinstance(config, LlamaConfig) else ""
    expected = last_logits(directory)
    get = Checkpoint.get_tensor
    driver = Driver(directory, num_blocks=80)
    driver.run([driver.row(driver.request(PROMPT))])
    # Of a mixture of experts, those that no token of the prompt uses.
    loads = driver.runner.expert_loads or [[], []]
    idle = [f"layers.1.mlp.experts.{one}." for one, load in enumerate(loads[1]) if not load]
    assert len(idle) < 4
    names = [
        name
        for name in load_file(directory / "model.safetensors")
        if name.startswith(prefix)
        and not re.search(r"(layers|h)\.[02]\.", name)
        and not any(one in name for one in idle)
    ]
    assert len(names) >= 8
    for name in names:
        monkeypatch.setattr(
            Checkpoint,
            "get_tensor",
            lambda self, asked, name=name: get(self, asked) * (asked != name),
        )
        assert (last_logits(directory) - expected).abs().max() > 0.01, name


@pytest.mark.parametrize("window", [None, 8, 10])
def test_the_window_is_exact(a_model, window):
    directory, model = a_model("mistral")
    assert not departs(directory, model, entries(windows=(9,) * 3))
    assert departs(directory, model, entries(windows=(window,) * 3))


@pytest.mark.parametrize(("window", "chunk"), [(1, 3), (4, 1), (9, 8), (40, 8), (41, 3), (300, 41)])
def test_what_falls_out_of_the_window_is_not_read(a_model, window, chunk):
    """NaN in every slot before the window of the tokens to come changes no logit."""
    directory, model = a_model("mistral")
    model.config.sliding_window = window
    try:
        expected = reference_logits(model, PROMPT)[-1:]
    finally:
        model.config.sliding_window = 9
    driver = Driver(directory, entries(windows=(window,) * 3))
    request = driver.request(PROMPT)
    while request.num_uncomputed_tokens > chunk:
        driver.run([driver.row(request, chunk)])
        for position in range(request.num_computed_tokens - window + 1):
            driver.kv[:, request.block_table[position // BLOCK_SIZE], position % BLOCK_SIZE] = (
                torch.nan
            )
    logits = driver.logits([driver.row(request)])
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=1e-4)


def test_windows_of_a_batch_begin_where_each_row_s_own_does(a_model):
    directory, model = a_model("mistral")
    driver = Driver(directory)
    requests = [driver.request(PROMPT[:n]) for n in (2, 8, 9, 10, 30, 41)]
    for request in requests:
        if request.num_uncomputed_tokens > 1:
            driver.run([driver.row(request, request.num_uncomputed_tokens - 1)])
    logits = driver.logits([driver.row(request) for request in requests])
    for request, got in zip(requests, logits, strict=True):
        expected = reference_logits(model, request.tokens)[-1]
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


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
    [({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"), (SELDOM, "BertModel")]
    + [({"architectures": wrong}, "architectures") for wrong in ([], None, "LlamaForCausalLM")]
    + [({}, "architectures")],
)
def test_an_unsupported_architecture_is_named_with_those_there_are(tmp_path, entries, named):
    (tmp_path / "config.json").write_text(json.dumps(entries))
    with raises_naming(CheckpointError, tmp_path, named, *SUPPORTED):
        Engine.load(tmp_path)


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "mamba"])
def test_an_unsupported_architecture_of_a_gguf_file_is_named(tmp_path, name):
    file = tmp_path / "m.gguf"
    finish(gguf.GGUFWriter(file, name))
    with raises_naming(CheckpointError, file, name, *ARCHITECTURES):
        Engine.load(file)
