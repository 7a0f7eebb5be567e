"""Adapters computed in one batch: equal to PEFT, to merged weights and to the reference product."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from engine import Engine, EngineConfig, SamplingParams
from engine.extensions.adapters import AdapterError
from engine.models.layers import Linear
from engine.models.lora import NO_ADAPTER, AdaptedLinear, Pair, Step, reference_product
from engine.models.weights.matrix import Int8Matrix
from tests.engine.adapters.peft_adapters import peft_logits, save_adapter
from tests.facts import raises_naming

EIGHT = [
    {"r": 4, "lora_alpha": 8},
    {"r": 8, "lora_alpha": 8},
    {"r": 16, "lora_alpha": 4, "use_rslora": True},
    {"r": 2, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj"]},
    {"r": 32, "lora_alpha": 16},
    {"r": 8, "lora_alpha": 8, "rank_pattern": {"q_proj": 3}, "alpha_pattern": {"down_proj": 20}},
    {"r": 5, "lora_alpha": 10, "target_modules": ["gate_proj", "o_proj"]},
    {"r": 64, "lora_alpha": 32, "layers_to_transform": [1, 4]},
]
PROMPT = "Once upon a time there was a small"


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    return [save_adapter(folder / str(i), i, **config) for i, config in enumerate(EIGHT)]


@pytest.fixture(scope="module")
def engine(paths) -> Engine:
    config = EngineConfig(max_loras=8, max_batch_size=16, token_budget=256)
    engine = Engine.load("bundled", config)
    for i, path in enumerate(paths):
        engine.adapters.add(f"a{i}", path)
    return engine


def run(engine: Engine) -> None:
    while engine.has_work():
        engine.step()


@pytest.mark.parametrize("repeats", [1, 3], ids=["gathered", "segments"])
def test_a_batch_of_eight_adapters_and_none_says_what_merged_models_say(engine, paths, repeats):
    params = SamplingParams(max_tokens=12, ignore_eos=True, logprobs=0)
    requests = [
        engine.submit(PROMPT * repeats, params, adapter=name)
        for name in ["", *(f"a{i}" for i in range(8))]
    ]
    engine.step()
    assert sum(len(request.output_ids) for request in requests) == 9, "one step computes all"
    run(engine)
    for path, request in zip(["", *paths], requests, strict=True):
        for merged in (True, False):
            logits = peft_logits(path, request.tokens[:-1], merged=merged)[-12:]
            assert request.output_ids == logits.argmax(dim=-1).tolist()
            logprobs = logits.log_softmax(dim=-1)[range(12), request.output_ids]
            torch.testing.assert_close(
                torch.tensor(request.logprobs), logprobs, atol=2e-4, rtol=1e-4
            )
    assert len({tuple(request.output_ids) for request in requests}) == 9, "each has its own text"


@given(data=st.data(), owner=st.lists(st.integers(NO_ADAPTER, 3), min_size=1, max_size=90))
@settings(max_examples=40, deadline=None)
def test_both_products_equal_the_reference(data, owner):
    torch.manual_seed(len(owner))
    ranks = data.draw(st.lists(st.integers(0, 9), min_size=4, max_size=4))
    quantized = data.draw(st.booleans())
    weight = torch.randn(7, 6)
    base = Linear(Int8Matrix.quantize(weight, torch.float32) if quantized else weight)
    linear = AdaptedLinear(base, (7, 6))
    for slot, rank in enumerate(ranks):
        if rank:  # 0: the adapter leaves this module as it is
            linear.put(slot, Pair(torch.randn(rank, 6), torch.randn(7, rank)))
    x = torch.randn(len(owner), 6)
    expected = reference_product(x, base(x), linear.pairs, owner)
    step = Step(owner, x.device)
    if any(slot in linear.pairs for slot in step.slots):
        for product in (linear.gathered, linear.segments):
            torch.testing.assert_close(product(x, base(x), step), expected, atol=1e-4, rtol=1e-4)
    linear.step = step
    torch.testing.assert_close(linear(x), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("use_dora", True),
        ("bias", "all"),
        ("modules_to_save", ["lm_head"]),
        ("peft_type", "IA3"),
        ("init_lora_weights", "pissa"),
        ("alora_invocation_tokens", [1]),
        ("lora_alpha", None),
    ],
)
def test_what_changes_the_meaning_of_the_matrices_is_rejected_by_name(
    engine, paths, tmp_path, entry, value
):
    copy(paths[0], tmp_path, config={entry: value})
    with raises_naming(AdapterError, entry):
        engine.adapters.add("wrong", str(tmp_path))
    assert "wrong" not in engine.adapters.registered


def test_files_that_do_not_fit_the_model_are_rejected_by_name(engine, paths, tmp_path):
    weights = load_file(Path(paths[0]) / "adapter_model.safetensors")
    first = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    other = "base_model.model.model.embed_tokens.lora_embedding_A"
    for changed, names in [
        ({first: torch.zeros(4, 100)}, ["q_proj", "100", "192"]),
        ({first: torch.zeros(3, 192)}, ["q_proj", "lora_A", "lora_B"]),
        ({other: torch.zeros(4, 192)}, [other]),
        ({first.replace("layers.0", "layers.6"): weights[first].clone()}, ["layers.6"]),
    ]:
        copy(paths[0], tmp_path, weights=weights | changed)
        with raises_naming(AdapterError, *names):
            engine.adapters.add("wrong", str(tmp_path))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"damaged")
    with raises_naming(AdapterError, "adapter_model.safetensors"):
        engine.adapters.add("wrong", str(tmp_path))
    with raises_naming(AdapterError, "adapter_config.json"):
        engine.adapters.add("wrong", str(tmp_path / "missing"))


def copy(path: str, target: Path, *, config=(), weights=None) -> None:
    """Copy an adapter with other entries or tensors."""
    source = Path(path)
    entries = json.loads((source / "adapter_config.json").read_text()) | dict(config)
    (target / "adapter_config.json").write_text(json.dumps(entries))
    if weights is None:
        weights = load_file(source / "adapter_model.safetensors")
    save_file(weights, target / "adapter_model.safetensors")
