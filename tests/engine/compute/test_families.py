"""What sets the families apart is really computed: without it the logits are others."""

import json
import re
import shutil
from types import SimpleNamespace

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from engine import Engine
from engine.compute.model import gpt2
from engine.compute.model.config import SUPPORTED, read_config
from engine.compute.model.families import Family
from engine.compute.weights.checkpoint import Checkpoint, CheckpointError
from engine.compute.weights.gguf_checkpoint import ARCHITECTURES
from tests.engine.compute.driver import BLOCK_SIZE, Driver
from tests.engine.compute.judge import PROMPT, departs, last_logits, reference_logits
from tests.engine.compute.models import MODELS
from tests.facts import raises_naming

# What sets each model apart, and the configuration without it.
NO_BIAS_OR_NORM = {"family": Family()}
SHARED, UNSCALED = {"tied_embeddings": True}, {"rope_scaling": None}
OTHER_EPS, OTHER_THETA = {"norm_eps": 1e-6}, {"rope_theta": 10_001.0}
FEATURES = {
    "gpt2": {"eps": OTHER_EPS},
    "gpt2-untied": {"untied": SHARED},
    "qwen3": {"qk-norm": NO_BIAS_OR_NORM, "eps": OTHER_EPS, "theta": OTHER_THETA},
    "qwen3-untied": {"untied": SHARED, "qk-norm": NO_BIAS_OR_NORM, "theta": OTHER_THETA},
    "llama": {"untied": SHARED, "eps": OTHER_EPS, "theta": {"rope_theta": 500.0}},
    "llama-mha-tied": {"eps": OTHER_EPS, "theta": {"rope_theta": 500.0}},
    "llama-linear": {"scaling": UNSCALED, "theta": OTHER_THETA},
    "llama-dynamic": {"theta": OTHER_THETA},  # and see test_rope_scaling.py
    "llama-llama3": {"scaling": UNSCALED, "theta": OTHER_THETA},
    "llama-yarn": {"scaling": UNSCALED, "theta": OTHER_THETA},
    "smollm": {"theta": OTHER_THETA},
    "qwen2-untied": {"untied": SHARED, "bias": NO_BIAS_OR_NORM, "theta": OTHER_THETA},
    "qwen2-shared": {"bias": NO_BIAS_OR_NORM, "theta": {"rope_theta": 500.0}},
    "mistral": {"untied": SHARED, "window": NO_BIAS_OR_NORM | {"window": None}},
}


@pytest.mark.parametrize(
    ("name", "feature"), [(name, feature) for name in FEATURES for feature in FEATURES[name]]
)
def test_switching_a_feature_off_is_noticed(a_model, name, feature, monkeypatch):
    directory, model = a_model(name)
    assert not departs(directory, model)
    # Otherwise an unused bias is an error, and an output layer in the file counts; see below.
    monkeypatch.setattr(Checkpoint, "check_all_taken", lambda self: None)
    monkeypatch.setattr(
        Checkpoint,
        "__contains__",
        lambda self, name: name in self._location and name != "lm_head.weight",
    )
    assert departs(directory, model, **FEATURES[name][feature])


@pytest.mark.parametrize("name", ["qwen2-untied", "qwen3"])
def test_weights_of_a_feature_that_is_off_are_an_error(a_model, name):
    with raises_naming(CheckpointError, "model.layers.0.self_attn"):
        Driver(a_model(name)[0], family=Family())


def test_a_tied_model_has_no_output_layer_of_its_own(any_model):
    directory, _ = any_model
    if read_config(directory).tied_embeddings:
        with raises_naming(CheckpointError, "lm_head.weight"):
            Driver(directory, tied_embeddings=False)
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


def test_every_weight_matters(any_model, monkeypatch):
    """Zeros in the place of any weight or bias of a layer, and of those outside, are noticed."""
    directory, _ = any_model
    expected = last_logits(directory)
    take = Checkpoint.take
    names = [n for n in load_file(directory / "model.safetensors") if not re.search(r"\.[02]\.", n)]
    assert len(names) >= 11
    for name in names:
        monkeypatch.setattr(
            Checkpoint,
            "take",
            lambda self, asked, *shape, name=name: take(self, asked, *shape) * (asked != name),
        )
        assert (last_logits(directory) - expected).abs().max() > 0.01, name


@pytest.mark.parametrize("window", [None, 8, 10])
def test_the_window_is_exact(a_model, window):
    directory, model = a_model("mistral")
    assert not departs(directory, model, window=9)
    assert departs(directory, model, window=window)


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
    driver = Driver(directory, window=window)
    request = driver.request(PROMPT)
    while request.num_uncomputed_tokens > chunk:
        driver.run([driver.row(request, chunk)])
        for position in range(request.num_computed_tokens - window + 1):
            driver.pages[:, request.block_table[position // BLOCK_SIZE], position % BLOCK_SIZE] = (
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
    assert {kind.__name__ for kind, _ in MODELS.values()} == SUPPORTED
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

    @pytest.mark.parametrize("name", ["gpt2", "phi3", "mamba"])
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
