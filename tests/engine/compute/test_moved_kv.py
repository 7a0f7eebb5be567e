"""Pages of a model's KV keep every bit, and go only where they fit.

That tokens decoded from moved KV are the same: `test_attention.py`.
"""

from dataclasses import replace

import torch

from engine.core.compute.kv_cache import KVCache
from engine.models.loader import load
from tests.engine.compute.test_attention import config_of


def test_pages_keep_every_bit() -> None:
    """Also where numpy has no name for the precision."""
    for dtype in ("float32", "bfloat16"):
        runner, _ = load("bundled", dtype=dtype)
        runner.reserve(6, 4)
        assert runner.kv_cache is not None
        memory = runner.kv_cache.tensor
        memory.copy_(torch.randn(memory.shape))
        before = memory.clone()
        pages = runner.read_pages([4, 1])
        assert len(pages) == 2 * runner.kv_format().page_bytes
        runner.write_pages([0, 5], memoryview(pages))
        assert torch.equal(memory[:, [0, 5]], before[:, [4, 1]])
        assert torch.equal(memory[:, 1:5], before[:, 1:5])


def test_pages_hold_layers_whose_heads_have_another_shape() -> None:
    config = replace(config_of(2, 1, windows=(5, None)), global_heads=(1, 24))
    cache = KVCache(config, 6, 4, torch.float32)
    memories = cache.tensor, cache.window_tensor
    before = [memory.copy_(torch.randn(memory.shape)).clone() for memory in memories]
    assert cache.page_shape == (4 * 2 * (2 * 8 + 24),)
    cache.write_pages([0, 5], memoryview(cache.read_pages([4, 1])))
    for memory, old in zip(memories, before, strict=True):
        assert torch.equal(memory, old[:, [4, 1, 2, 3, 4, 1]])


def test_formats_differ_with_precision_and_block_size() -> None:
    runners = []
    for dtype, size in (("float32", 4), ("float32", 8), ("bfloat16", 4)):
        runner, _ = load("bundled", dtype=dtype)
        runner.reserve(6, size)
        runners.append(runner)
    again, _ = load("bundled")
    again.reserve(9, 4)
    assert again.kv_format() == runners[0].kv_format()
    assert len({runner.kv_format() for runner in runners}) == 3
