"""One code path for every device: on a simulated one, the engine computes what it does on the CPU.

`simulated_device.py` finds each operation that mixes devices. What it cannot show is whether a real GPU
has all the operations, and how fast they are.
"""

import numpy as np
import pytest

from engine import Engine, EngineConfig, SamplingParams
from engine.core.compute.device import CPU
from engine.core.compute.paged_attention import ReferenceAttention
from engine.core.log import vocabulary as v
from engine.models import loader
from engine.models.weights.gguf_checkpoint import GGUFCheckpoint
from tests.engine.compute.gguf_files import Type, write
from tests.engine.compute.simulated_device import DEVICE, simulated_device
from tests.engine.compute.tensors import tensors_of
from tests.engine.drafters import Knowing
from tests.engine.workloads import finish

PROMPTS = [[5, 6, 7, 8, 9, 10], [5, 6, 7, 8, 20, 21, 22, 23, 24], [40]]
# Small, so that prompts are chunked and rows are ragged.
CONFIG = EngineConfig(token_budget=5, max_batch_size=3, max_kv_tokens=40, block_size=4)


@pytest.fixture
def simulated(monkeypatch):
    """Make the simulated device available as "cuda"."""

    def resolve(name):
        return DEVICE if name == "cuda" else CPU

    monkeypatch.setattr(loader, "resolve_device", resolve)
    with simulated_device():
        yield


def answers(model, device, drafter=None, **options):
    """Serve a few requests that use every part of the sampler; return what they got."""
    engine = Engine.load(model, CONFIG, dtype="float32", device=device, drafter=drafter, **options)
    params = [
        SamplingParams(max_tokens=5, ignore_eos=True, logprobs=2, prompt_logprobs=2),
        SamplingParams(
            max_tokens=5, temperature=0.8, top_k=9, top_p=0.9, seed=3, n=2, ignore_eos=True,
            repetition_penalty=1.2, frequency_penalty=0.3, logit_bias={11: 3.0},
        ),
        SamplingParams(max_tokens=5, min_tokens=4, allowed_token_ids=tuple(range(30))),
    ]  # fmt: skip
    requests = [engine.submit(*pair) for pair in zip(PROMPTS, params, strict=True)]
    finish(engine)
    assert not [request.error for request in requests if request.error]
    return engine, [request.tokens for request in requests]


@pytest.mark.parametrize(
    "name", ["gpt2", "qwen2-untied", "mistral", "gemma4", "gemma4-moe", "gpt-oss-mxfp4"]
)
def test_tokens_are_those_of_the_cpu(a_model, simulated, name):
    path, _ = a_model(name)
    engine, tokens = answers(path, "cuda")
    assert tokens == answers(path, "cpu")[1]
    held = [*tensors_of(engine.runner._model), engine.runner.kv_cache.tensor]
    assert {tensor.device for tensor in held} == {DEVICE}


def test_the_reference_of_attention_runs_there_too(a_model, simulated):
    path, _ = a_model("qwen3")
    assert answers(path, "cuda", attention=ReferenceAttention)[1] == answers(path, "cpu")[1]


def test_gguf_files(tmp_path, simulated, monkeypatch):
    monkeypatch.setattr(GGUFCheckpoint, "int8", False)  # a CPU would round activations
    write(tmp_path / "m.gguf", "llama", Type.Q8_0)
    assert answers(tmp_path / "m.gguf", "cuda")[1] == answers(tmp_path / "m.gguf", "cpu")[1]


def test_drafts_are_verified_there(a_model, simulated):
    path, _ = a_model("qwen3")
    known = answers(path, "cpu")[1]
    drafter = Knowing(known, wrong=lambda position: position % 3 == 0)
    engine, tokens = answers(path, "cuda", drafter=drafter)
    assert tokens == known
    assert any(row.drafts for event in engine.log.of(v.StepScheduled) for row in event.rows)


def test_pages_move_between_devices(a_model, simulated):
    path, _ = a_model("qwen3")
    there, here = (answers(path, device)[0].runner for device in ("cuda", "cpu"))
    assert there.kv_format() == here.kv_format()
    for cache in (there.kv_cache, here.kv_cache):
        cache.tensor.zero_()
    blocks = [3, 1]
    drawn = np.random.default_rng(0).bytes(2 * there.kv_format().page_bytes)
    there.write_pages(blocks, memoryview(drawn))
    assert there.read_pages(blocks) == drawn
    here.write_pages(blocks, memoryview(there.read_pages(blocks)))
    assert here.read_pages(range(10)) == there.read_pages(range(10))
