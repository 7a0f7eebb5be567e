"""KV in int8: small errors, the same tokens however they are read, pages that fit only their like."""

import math
from random import Random
from typing import Any

import pytest
import torch

from engine import Engine, EngineConfig, SamplingParams
from engine.core.compute.mirror import MirroredAttention
from engine.core.compute.model import kv_bytes
from engine.core.compute.paged_attention import PagedAttention, ReferenceAttention
from engine.models.int8_kv import Int8KV
from engine.models.loader import load, plan
from engine.training import stories

PROMPTS = ["Once upon a time", "What is 17 + 25?", "Once upon a time there was an owl", "The cat"]


def tokens(model: Any = "bundled", attention: Any = None, **settings: Any) -> list[list[int]]:
    """Return greedy tokens; batches, chunks and cached prefixes depend on the settings."""
    runner, tokenizer = load(model)
    config = EngineConfig(kv_dtype="int8", **settings)
    engine = Engine(runner, config, tokenizer=tokenizer, attention=attention)
    params = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
    return [list(one.token_ids) for one in engine.complete(PROMPTS, params, progress=False)]


@pytest.mark.parametrize("size", [2, 32, 576])
def test_a_value_moves_by_at_most_half_a_step_of_its_own_scale(size: int) -> None:
    torch.manual_seed(0)
    vectors = torch.randn(50, 3, size) * torch.logspace(-6, 6, 50)[:, None, None]
    vectors[7] = 0
    codec = Int8KV()
    stored = codec.encode(vectors)
    assert (stored.dtype, stored.shape[-1]) == (torch.int8, codec.stored_size(size))
    decoded = codec.decode(stored, torch.empty_like(vectors))
    step = vectors.abs().amax(-1, keepdim=True) / 127
    assert bool(((decoded - vectors).abs() <= step * 0.5001).all())
    assert torch.equal(decoded[7], vectors[7])
    # Stored again, it is the same: copies of copies do not drift.
    again = codec.decode(codec.encode(decoded), torch.empty_like(vectors))
    torch.testing.assert_close(again, decoded, rtol=1e-6, atol=0)
    half = codec.decode(stored, torch.empty_like(vectors, dtype=torch.bfloat16))
    torch.testing.assert_close(half.float(), decoded, rtol=1e-2, atol=0)


def test_tokens_are_the_same_alone_batched_in_chunks_cached_and_after_a_preemption() -> None:
    expected = tokens(max_batch_size=1)
    assert tokens() == expected
    assert tokens(token_budget=3, max_batch_size=3, block_size=4) == expected
    assert tokens(prefix_cache="hash", block_size=2) == expected
    assert tokens(max_kv_tokens=64, block_size=4, admission="first_chunk") == expected
    for attention in (PagedAttention, ReferenceAttention, MirroredAttention):
        assert tokens(attention=attention) == expected


@pytest.mark.parametrize("name", ["mistral", "gemma3", "gemma4", "gpt-oss", "deepseek-v3-yarn"])
def test_windows_shared_kv_and_sinks_read_int8(a_model: Any, name: str) -> None:
    directory = a_model(name)[0]
    paged = tokens(directory, max_batch_size=2, token_budget=8, block_size=2)
    assert paged == tokens(directory, ReferenceAttention, max_batch_size=1, max_kv_tokens=512)


def test_perplexity_and_most_tokens_stay() -> None:
    perplexity: dict[str, float] = {}
    rng = Random(987_654_321)
    texts = [stories.plain_story(rng) for _ in range(12)]
    for kv_dtype in ("auto", "int8"):
        engine = Engine.load("bundled", EngineConfig(kv_dtype=kv_dtype, token_budget=256))
        ids = [engine.tokenizer.encode(text)[:256] for text in texts]
        scored = engine.complete(
            ids, SamplingParams(max_tokens=1, prompt_logprobs=0), progress=False
        )
        logprobs = [token.logprob for one in scored for token in one.prompt_scores]
        perplexity[kv_dtype] = math.exp(-sum(logprobs) / len(logprobs))
    assert perplexity["auto"] != perplexity["int8"]
    assert perplexity["int8"] == pytest.approx(perplexity["auto"], rel=0.005)


def test_the_plan_and_the_log_state_the_bytes_that_are_allocated() -> None:
    config = EngineConfig(kv_dtype="int8", max_kv_tokens=512)
    engine = Engine.load("bundled", config)
    runner, _ = load("bundled", engine=config)
    model = runner._model.config
    vectors = 2 * model.num_kv_heads * model.num_layers
    assert engine.log[0].model["kv_bytes_per_token"] == vectors * (model.head_dim + 4)
    assert engine.log[0].model["kv_bytes"] == plan("bundled", config).kv == 512 * vectors * (32 + 4)
    assert kv_bytes(model, torch.float32, 1, 1) == vectors * model.head_dim * 4
    # The same runner in another engine follows that engine's setting.
    again = Engine(runner, config, tokenizer=engine.tokenizer)
    plain = Engine(runner, EngineConfig(), tokenizer=engine.tokenizer)
    assert "kv_dtype" in again.log[0].model and "kv_dtype" not in plain.log[0].model
