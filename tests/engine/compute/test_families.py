"""What sets the families apart is really computed: without it the logits are others."""

import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from engine import Engine
from engine.compute.model import gpt2
from engine.compute.model.config import LlamaConfig
from engine.compute.model.config_file import SUPPORTED, read_config
from engine.compute.model.families import Norms
from engine.compute.weights.checkpoint import Checkpoint, CheckpointError
from engine.compute.weights.gguf_architectures import ARCHITECTURES
from tests.engine.compute.driver import BLOCK_SIZE, Driver
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


def swapped_ropes(config):
    """The layers with a window rotate as the others do, and the others as they do."""
    first, second, third = config.ropes
    assert first == third != second
    return replace(config, ropes=(second, first, second))


def all_layers_rotate(config):
    return replace(config, ropes=(config.ropes[0],) * config.num_layers)


NO_WINDOW = entries(windows=(None,) * 3)
NO_BIAS = entries(qkv_bias=False)
NO_HEAD_NORM = family(qk_norm=None)
UNTIED, UNSCALED = entries(tied_embeddings=True), ropes(scaling=None)
EPS, THETA = entries(norm_eps=1e-6), ropes(theta=10_001.0)
GEMMA3 = {
    "norm-offset": family(norm_offset=0.0),
    "embedding-scale": family(scaled_embedding=False),
    "qk-norm": NO_HEAD_NORM,
    "query-scale": entries(query_scale=1.0),
    "activation": entries(activation="silu"),
    "window": NO_WINDOW,
    "window-everywhere": entries(windows=(8,) * 3),
    "ropes": swapped_ropes,
    "scaling": UNSCALED,
    "norms-after": family(norms=Norms("input_layernorm", None, "pre_feedforward_layernorm", None)),
}
PHI4 = {"scaling": UNSCALED, "theta": THETA}
# What sets each model apart, and the configuration without it.
FEATURES = {
    "gpt2": {"eps": EPS},
    "gpt2-untied": {"untied": UNTIED},
    "qwen3": {"qk-norm": NO_HEAD_NORM, "eps": EPS, "theta": THETA},
    "qwen3-untied": {"untied": UNTIED, "qk-norm": NO_HEAD_NORM, "theta": THETA},
    "llama": {"untied": UNTIED, "eps": EPS, "theta": ropes(theta=500.0)},
    "llama-biases": {
        "qkv-bias": NO_BIAS,
        "output-bias": entries(output_bias=False),
        "mlp-bias": entries(mlp_bias=False),
    },
    "llama-mha-tied": {"eps": EPS, "theta": ropes(theta=500.0)},
    "llama-linear": {"scaling": UNSCALED, "theta": THETA},
    "llama-dynamic": {"theta": THETA},  # and see test_rope_scaling.py
    "llama-llama3": {"scaling": UNSCALED, "theta": THETA},
    "llama-yarn": {"scaling": UNSCALED, "theta": THETA},
    "smollm": {"theta": THETA},
    "qwen2-untied": {"untied": UNTIED, "bias": NO_BIAS, "theta": THETA},
    "qwen2-shared": {"bias": NO_BIAS, "theta": ropes(theta=500.0)},
    "qwen2-windowed": {
        "window": NO_WINDOW,
        "window-everywhere": entries(windows=(8,) * 3),
        "bias": NO_BIAS,
    },
    "mistral": {"untied": UNTIED, "window": NO_WINDOW},
    "gemma3": GEMMA3,
    "gemma3-untied-biases": GEMMA3 | {"untied": UNTIED, "biases": NO_BIAS},
    "gemma3-with-vision": {"scaling": UNSCALED},
    "phi3": {"untied": UNTIED, "window": NO_WINDOW, "theta": THETA, "eps": EPS},
    "phi4-short-tied": PHI4,
    "phi4-long": PHI4 | {"untied": UNTIED, "partial": ropes(size=8, scaling=None)},
    "smollm3": {"nope": all_layers_rotate, "theta": THETA, "eps": EPS},
    "smollm3-untied-biases": {
        "untied": UNTIED,
        "nope": all_layers_rotate,
        "window": NO_WINDOW,
        "qkv-bias": NO_BIAS,
        "output-bias": entries(output_bias=False),
        "mlp-bias": entries(mlp_bias=False),
    },
    "olmo2": {
        "untied": UNTIED,
        "qk-norm": NO_HEAD_NORM,
        "eps": EPS,
        "theta": ropes(theta=500.0),
    },
    "qwen3-moe": {
        "qk-norm": NO_HEAD_NORM,
        "renormalised": entries(norm_topk_prob=False),
        "experts": entries(experts_per_token=1),
    },
    "qwen3-moe, dense layer": {"not renormalised": entries(norm_topk_prob=True)},
}


@pytest.mark.parametrize(
    ("name", "feature"), [(name, feature) for name in FEATURES for feature in FEATURES[name]]
)
def test_switching_a_feature_off_is_noticed(a_model, name, feature, monkeypatch):
    directory, model = a_model(name)
    assert not departs(directory, model)
    # Otherwise a bias left over is an error, and an output layer in the file is used; see below.
    monkeypatch.setattr(Checkpoint, "check_all_loaded", lambda self: None)
    monkeypatch.setattr(
        Checkpoint,
        "__contains__",
        lambda self, name: name in self._location and name != "lm_head.weight",
    )
    assert departs(directory, model, FEATURES[name][feature])


@pytest.mark.parametrize(
    ("name", "change"),
    [("qwen2-untied", NO_BIAS), ("qwen3", NO_HEAD_NORM), ("olmo2", NO_HEAD_NORM)],
)
def test_weights_of_a_feature_that_is_off_are_an_error(a_model, name, change):
    with raises_naming(CheckpointError, "model.layers.0.self_attn"):
        Driver(a_model(name)[0], change)


def test_a_tied_model_has_no_output_layer_of_its_own(any_model):
    directory, _ = any_model
    if read_config(directory).tied_embeddings:
        with raises_naming(CheckpointError, "lm_head.weight"):
            Driver(directory, entries(tied_embeddings=False))
    else:
        assert "lm_head.weight" in load_file(directory / "model.safetensors")


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


@pytest.mark.parametrize("window", [1, 4, 9, 40, 41, 300])
@pytest.mark.parametrize("chunk", [1, 3, 8, 41])
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
        "replaced",
        [
            {"gelu": lambda x, approximate: F.gelu(x)},
            {"layer_norm": lambda x, size, weight, bias, eps: F.rms_norm(x, size, weight, eps)},
        ],
        ids=["the tanh in its gelu", "layer norm"],
    )
    def test_what_others_do_otherwise_matters(self, copy, replaced, monkeypatch):
        """The tanh approximates gelu well, but not so well that parity would not notice."""
        directory, model, _ = copy
        expected = reference_logits(model, PROMPT)[-1:]
        functions = {n: getattr(F, n) for n in ("embedding", "linear", "layer_norm", "gelu")}
        for replacement, least, most in (({}, 0, 2e-5), (replaced, 2e-4, 1e9)):
            monkeypatch.setattr(gpt2, "F", SimpleNamespace(**functions | replacement))
            assert least <= (last_logits(directory) - expected).abs().max() < most

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
    assert set(FEATURES) == set(MODELS)


class TestUnsupportedArchitectures:
    """The error names what the file asks for and lists everything there is."""

    @pytest.mark.parametrize(
        ("architectures", "named"),
        [
            (["MambaForCausalLM"], "MambaForCausalLM"),
            (["BertModel", "LlamaForCausalLM"], "BertModel"),
            ([], "architectures"),
            (None, "architectures"),
            ("LlamaForCausalLM", "architectures"),
        ],
    )
    def test_of_a_config_json(self, tmp_path, architectures, named):
        (tmp_path / "config.json").write_text(json.dumps({"architectures": architectures}))
        self.check(tmp_path, named, SUPPORTED)

    def test_of_a_config_json_without_the_entry(self, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        self.check(tmp_path, "architectures", SUPPORTED)

    @pytest.mark.parametrize("name", ["gpt2", "gemma2", "mamba"])
    def test_of_a_gguf_file(self, tmp_path, name):
        file = tmp_path / "m.gguf"
        writer = gguf.GGUFWriter(file, name)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        self.check(file, name, ARCHITECTURES)

    def check(self, model, named, supported):
        with raises_naming(CheckpointError, model, named, *supported):
            Engine.load(model)
