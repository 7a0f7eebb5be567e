"""Attention equals the reference, and neither a mirror nor window pages change a token."""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from engine import Engine, EngineConfig, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.compute import mirror
from engine.core.compute.kv_cache import KVCache
from engine.core.compute.mirror import Mirror, MirroredAttention
from engine.core.compute.model import ModelConfig
from engine.core.compute.paged_attention import PagedAttention, ReferenceAttention
from engine.core.compute.torch_runner import TorchRunner, make_batch
from engine.core.log import vocabulary as v
from engine.core.request import Request
from engine.core.runner import Row
from engine.models.config_file import read_config
from engine.models.loader import build
from engine.models.weights.checkpoint import Checkpoint
from tests.engine.compute.driver import Driver
from tests.engine.drafters import Knowing
from tests.engine.simulation.pinned import texts_of
from tests.engine.workloads import finish

BLOCKS = 400


SIZES = dict(vocab_size=10, hidden_size=8, intermediate_size=8, num_layers=2, max_context=1000)
OTHERS = dict(architecture="any", norm_eps=1e-6, tied_embeddings=True)


def config_of(kv_heads, sharing, windows):
    heads = dict(num_heads=kv_heads * sharing, num_kv_heads=kv_heads, head_dim=8)
    return ModelConfig(**SIZES, **OTHERS, **heads, windows=windows)


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
    cache.mirror = Mirror(config, cache)
    computed = torch.randn(cache.tensor.shape, generator=torch.manual_seed(seed))
    cache.tensor.fill_(float("nan"))
    for row in rows:
        for position in range(row.start):
            block = row.request.block_table[position // block_size]
            slot = position % block_size
            cache.tensor[:, block, slot] = computed[:, block, slot]
    return cache


def outputs(config, attention, rows, seed, sinks):
    """What an attention computes from random queries, keys and values in two layers."""
    generator, tokens = torch.manual_seed(seed), sum(row.count for row in rows)
    queries = torch.randn(tokens, config.num_heads, config.head_dim, generator=generator)
    shape = (tokens, 2 * config.num_kv_heads, config.head_dim)
    keys_values = torch.randn(shape, generator=generator)
    own = (torch.randn(config.num_heads, generator=generator) * 3,) if sinks else ()
    layers = [attention(one, queries.clone(), keys_values.clone(), *own) for one in (0, 1)]
    return torch.stack(layers)


def with_window_pages(config, rows, block_size, seed):
    """The same cache, in which blocks before the windows have no page for sliding layers."""
    full = cache_of(config, rows, block_size, seed)
    reach = max(window for window in config.windows if window is not None) - 1
    needed = [
        block
        for row in rows
        for block in row.request.block_table[max(row.start - reach, 0) // block_size :]
    ]
    pages = random.Random(seed).sample(range(len(needed)), len(needed))
    cache = KVCache(config, BLOCKS, block_size, torch.float32, num_window_pages=len(needed))
    cache.mirror = Mirror(config, cache)
    cache.map_window_pages(list(zip(needed, pages, strict=True)))
    slides = [layer for layer in range(2) if config.windows[layer] is not None]
    cache.tensor.copy_(full.tensor[[layer for layer in range(2) if layer not in slides]])
    cache.window_tensor[:, pages] = full.tensor[slides][:, needed]
    return cache


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    kv_heads=st.sampled_from([1, 2]),
    sharing=st.sampled_from([1, 3]),
    windows=st.tuples(*[st.sampled_from([None, 1, 5, 24])] * 2),
    block_size=st.sampled_from([1, 4, 16]),
    sinks=st.booleans(),
)
def test_attention_equals_the_reference(seed, kv_heads, sharing, windows, block_size, sinks):
    config = config_of(kv_heads, sharing, windows)
    rows = random_rows(random.Random(seed), block_size)
    makers = [cache_of] + [with_window_pages] * any(windows)
    classes = ReferenceAttention, PagedAttention, MirroredAttention
    kinds = [(kind, make) for make in makers for kind in classes]
    caches = [make(config, rows, block_size, seed) for _, make in kinds]
    expected, *found = (
        outputs(config, kind(config, cache, make_batch(rows, block_size)), rows, seed, sinks)
        for (kind, _), cache in zip(kinds, caches, strict=True)
    )
    assert expected.isfinite().all()
    for one in found:
        torch.testing.assert_close(one, expected, atol=2e-5, rtol=1e-4)
    for cache in caches[1:3]:
        torch.testing.assert_close(caches[0].tensor, cache.tensor, rtol=0, atol=0, equal_nan=True)


WINDOW = 9
SLIDING = {
    "none": (None,) * 3,
    "all": (WINDOW,) * 3,
    "some": (WINDOW, None, WINDOW),
    "of two sizes": (WINDOW, None, 3),
}
SMALL = EngineConfig(
    token_budget=12, max_batch_size=3, block_size=4, max_kv_tokens=640, admission="first_chunk"
)


@pytest.fixture
def runner_of(a_model):
    """Make a runner with sliding layers: none, all, some (in a model with sinks), or of two kinds."""

    def make(kind: str) -> TorchRunner:
        name = "gpt-oss" if kind == "some" else "mistral" if kind in SLIDING else kind
        directory, _ = a_model(name)
        config = read_config(directory)
        config = replace(config, windows=SLIDING.get(kind, config.windows))
        return TorchRunner(build(config, Checkpoint(directory, torch.float32)))

    return make


def check_mirror(engine: Engine) -> None:
    """Every copy is equal to what the blocks hold, bit for bit, and all fit in the stated memory."""
    cache = engine.runner.kv_cache
    regions = cache.mirror._regions if cache.mirror and not engine.is_in_flight else []
    most = engine.runner.describe().get("mirror_bytes")
    assert sum(region._memory.nbytes for region in regions) <= (most or 0)
    for region in regions:
        for place, table, length in region.rows.values():
            for memory, layer in zip(region._memory[:, :, place], region._layers, strict=True):
                slots = cache.by_block[layer][table].view(-1, *memory.permute(2, 0, 1, 3).shape[1:])
                assert torch.equal(memory[:, :, :length], slots[:length].permute(1, 2, 0, 3))


def serve(runner: TorchRunner, config: EngineConfig, drafter: Knowing | None = None) -> Engine:
    """Nine prompts that share beginnings, some of them forked; some come late."""
    rng = random.Random(5)
    engine = Engine(runner, config, tokenizer=ByteTokenizer(), drafter=drafter)
    stems = [[rng.randrange(97) for _ in range(60)] for _ in range(2)]
    for number in range(9):
        prompt = stems[number % 2][: rng.randint(1, 60)] + [rng.randrange(97) for _ in range(4)]
        params = SamplingParams(
            max_tokens=rng.randint(5, 30),
            ignore_eos=True,
            n=rng.choice([1, 1, 2]),
            temperature=0.0 if drafter else rng.choice([0.0, 1.0]),
        )
        engine.submit(prompt, params)
        for _ in range(rng.choice([0, 0, 15])):
            engine.step()
    finish(engine, lambda _: check_mirror(engine))
    assert engine.log.state().core() == engine.snapshot()
    return engine


def texts(engine: Engine) -> dict[int, list[int]]:
    assert {event.reason for event in engine.log.of(v.RequestFinished)} == {"length"}
    return texts_of(engine.log)


TIGHT = {"prefix_cache": "radix", "max_kv_tokens": 128, "max_batch_size": 5}  # preempts


@pytest.mark.parametrize(
    ("kind", "changes", "drafts"),
    [
        ("none", TIGHT, True),
        ("none", {"prefix_cache": "hash", "max_batch_size": 9}, False),
        ("all", {"prefix_cache": "radix"}, False),
        ("some", TIGHT, False),
        ("some", {"prefix_cache": "hash", "admission": "whole"}, True),
        ("gemma4", TIGHT, False),
        ("of two sizes", {"prefix_cache": "off"}, True),
        ("of two sizes", {"prefix_cache": "hash", "async_scheduling": True}, False),
    ],
    ids=str,
)
def test_neither_mirror_nor_freed_pages_change_a_token(
    runner_of, kind, changes, drafts, monkeypatch
):
    runner, config, drafter = runner_of(kind), structs.replace(SMALL, **changes), None
    if drafts:
        known = texts(serve(runner, config, Knowing([], wrong=lambda _: False))).values()
        drafter = Knowing(list(known), wrong=lambda position: position % 3 == 0)
    copied, copy = [], mirror._Region._copy
    monkeypatch.setattr(mirror._Region, "_copy", lambda *args: copied.append(copy(*args)))
    mirrored = serve(runner, config, drafter)
    assert 0 < len(copied) < sum(map(len, texts(mirrored).values())) / 2 or kind == "all"
    runner.attention = PagedAttention
    paged = serve(runner, config, drafter)
    assert texts(mirrored) == texts(paged)
    assert mirrored.log.deterministic()[1:] == paged.log.deterministic()[1:]
    runner.window = None  # as if no layer slid: the memory has a place for every token
    kept = serve(runner, config, drafter)
    assert texts(kept) == texts(paged)
    assert bool(paged.log.of(v.WindowPagesEvicted)) == (kind != "none")
    assert not kept.log.of(v.WindowPagesEvicted)
    assert drafts or bool(paged.log.of(v.Preempted)) == ("max_kv_tokens" in changes)
    if config.prefix_cache != "off":
        assert any(event.blocks for event in paged.log.of(v.Admitted))
    if drafts:
        assert any(row.accepted for event in paged.log.of(v.StepFinished) for row in event.tokens)


def test_the_mirror_follows_the_blocks(qwen3):
    """Also when a pass is repeated, when pages arrive, and after a request whose KV was damaged."""
    driver = Driver(qwen3[0])
    runner = driver.runner
    long, short, other = (driver.request(range(3, 3 + size)) for size in (17, 9, 4))

    def check(*requests):
        rows = [driver.row(request) for request in requests]
        found = [driver.logits(rows), driver.logits(rows)]
        runner.attention = PagedAttention
        torch.testing.assert_close(found, [driver.logits(rows)] * 2)
        runner.attention = MirroredAttention
        driver.run(rows)

    driver.run([driver.row(request) for request in (long, short, other)])
    for _ in range(3):
        check(long, short)
    runner.write_pages(long.block_table[:2], memoryview(runner.read_pages(short.block_table[:2])))
    check(long, short)
    driver.kv[:, short.block_table[:2]] = float("nan")
    runner.kv_cache.copy([])
    with pytest.raises(FloatingPointError):
        driver.run([driver.row(request) for request in (long, short)])
    check(long, other)


def test_a_long_text_needs_no_more_window_pages_than_a_short_one(runner_of):
    runner = runner_of("all")
    engine = Engine(runner, structs.replace(SMALL, prefix_cache="off"), tokenizer=ByteTokenizer())
    request = engine.submit([5] * 4, SamplingParams(max_tokens=240, ignore_eos=True))
    pages = engine.cache.pages
    used = []
    finish(engine, lambda _: used.append(pages.num_pages - pages.num_available))
    assert len(request.output_ids) == 240
    assert max(used) <= 4  # a window of 9 tokens touches 3 blocks; the next token may need a fourth


@pytest.mark.parametrize(
    ("kind", "prefix_cache"), [("some", "radix"), ("some", "hash"), ("gemma4", "radix")]
)
def test_a_moved_prefix_brings_its_window(runner_of, kind, prefix_cache):
    there, here, alone = (
        Engine(runner_of(kind), structs.replace(SMALL, prefix_cache=prefix_cache)) for _ in range(3)
    )
    prompt = [random.Random(1).randrange(97) for _ in range(43)]
    there.complete([prompt], SamplingParams(max_tokens=1), progress=False)
    pages = there.kv_transfer.export(prompt)
    assert pages.blocks == 10
    assert here.kv_transfer.adopt(prompt[:40], pages.data) == 10
    assert here.log.of(v.PrefixAdopted)[0].window_pages == 2  # positions 32 to 39
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    [moved], [expected] = (
        engine.complete([prompt], params, progress=False) for engine in (here, alone)
    )
    assert here.log.of(v.Admitted)[0].blocks
    assert moved.token_ids == expected.token_ids
    assert here.log.state().core() == here.snapshot()
    whole = Engine(runner_of(kind), structs.replace(SMALL, max_kv_tokens=48))
    assert whole.runner.kv_format() != here.runner.kv_format()
