"""The fast paged attention equals the reference on random rows, block tables and windows."""

import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import SamplingParams
from engine.compute.attention.kv_cache import KVCache
from engine.compute.attention.paged_attention import PagedAttention
from engine.compute.attention.reference import ReferenceAttention
from engine.compute.batch import make_batch
from engine.compute.model.config import ModelConfig
from engine.runner import Row
from engine.scheduling.request import Request

BLOCKS = 400


def config_of(kv_heads, sharing, windows):
    return ModelConfig(
        architecture="any",
        vocab_size=10,
        hidden_size=8,
        intermediate_size=8,
        num_layers=2,
        num_heads=kv_heads * sharing,
        num_kv_heads=kv_heads,
        head_dim=8,
        max_context=1000,
        norm_eps=1e-6,
        tied_embeddings=True,
        windows=windows,
    )


def random_rows(rng, block_size):
    """Decodes, chunks and whole prompts, with blocks handed out in random order."""
    free = list(range(BLOCKS))
    rng.shuffle(free)
    rows = []
    for id_ in range(rng.randint(1, 6)):
        start = rng.choice([0, 0, rng.randrange(40)])
        count = rng.choice([1, 1, 2, rng.randint(1, 20)])
        end = start + count
        request = Request(id_, [0] * end, [], SamplingParams(), prompt_length=end)
        request.block_table = [free.pop() for _ in range(-(-end // block_size))]
        rows.append(Row(request, start, count, [], [0]))
    return rows


def cache_of(config, rows, block_size, seed):
    """A KV cache with the earlier tokens of `rows`, and NaN in every other slot."""
    cache = KVCache(config, BLOCKS, block_size, torch.float32)
    computed = torch.randn(cache.tensor.shape, generator=torch.manual_seed(seed))
    cache.tensor.fill_(float("nan"))
    for row in rows:
        for position in range(row.start):
            block = row.request.block_table[position // block_size]
            slot = position % block_size
            cache.tensor[:, block, slot] = computed[:, block, slot]
    return cache


def outputs(config, attention, rows, seed):
    """What an attention computes from random queries, keys and values in two layers."""
    generator, tokens = torch.manual_seed(seed), sum(row.count for row in rows)
    queries = torch.randn(tokens, config.num_heads, config.head_dim, generator=generator)
    shape = (tokens, 2 * config.num_kv_heads, config.head_dim)
    keys_values = torch.randn(shape, generator=generator)
    return torch.stack([attention(one, queries.clone(), keys_values.clone()) for one in (0, 1)])


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    kv_heads=st.sampled_from([1, 2]),
    sharing=st.sampled_from([1, 3]),
    windows=st.tuples(*[st.sampled_from([None, 1, 5, 24])] * 2),
    block_size=st.sampled_from([1, 4, 16]),
)
def test_paged_attention_equals_the_reference(seed, kv_heads, sharing, windows, block_size):
    config = config_of(kv_heads, sharing, windows)
    rows = random_rows(random.Random(seed), block_size)
    batch = make_batch(rows, block_size)
    caches = [cache_of(config, rows, block_size, seed) for _ in range(2)]
    found = outputs(config, PagedAttention(config, caches[0], batch), rows, seed)
    expected = outputs(config, ReferenceAttention(config, caches[1], batch), rows, seed)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(caches[0].tensor, caches[1].tensor, rtol=0, atol=0, equal_nan=True)
