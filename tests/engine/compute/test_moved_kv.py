"""Pages of a model's KV keep every bit, and go only where they fit.

That tokens decoded from moved KV are the same: `test_attention.py`.
"""

from typing import Any

import torch

from engine.models.loader import load


def test_pages_keep_every_bit(a_model: Any) -> None:
    """Also where numpy has no name for the precision, or where layers have other heads."""
    for name, dtype, kv_dtype in (
        ("qwen3", "float32", "auto"),
        ("qwen3", "bfloat16", "auto"),
        ("qwen3", "float32", "int8"),
        ("gemma4", "bfloat16", "auto"),
    ):
        runner, _ = load(a_model(name)[0], dtype=dtype)
        runner.kv_dtype = kv_dtype
        runner.reserve(6, 4)
        assert runner.kv_cache is not None
        memories = runner.kv_cache.tensor, runner.kv_cache.window_tensor
        before = [memory.copy_(40 * torch.randn(memory.shape)).clone() for memory in memories]
        pages = runner.read_pages([4, 1])
        assert len(pages) == 2 * runner.kv_format().page_bytes
        runner.write_pages([0, 5], memoryview(pages))
        for memory, old in zip(memories, before, strict=True):
            assert torch.equal(memory, old[:, [4, 1, 2, 3, 4, 1]])


def test_formats_differ_with_precision_and_block_size() -> None:
    runners = []
    for dtype, size, kv_dtype in (
        ("float32", 4, "auto"), ("float32", 8, "auto"), ("bfloat16", 4, "auto"), ("float32", 4, "int8"),
    ):  # fmt: skip
        runner, _ = load("bundled", dtype=dtype)
        runner.kv_dtype = kv_dtype
        runner.reserve(6, size)
        runners.append(runner)
    again, _ = load("bundled")
    again.reserve(9, 4)
    assert again.kv_format() == runners[0].kv_format()
    assert len({runner.kv_format() for runner in runners}) == 4
    assert runners[0].kv_format().page_bytes > 3 * runners[3].kv_format().page_bytes
