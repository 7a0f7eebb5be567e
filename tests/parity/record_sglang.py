"""Record what SGLang's own `RadixCache` matches and evicts.

    python -m pip install --no-deps --target /tmp/sglang sglang==0.5.23
    make record-sglang SGLANG=/tmp/sglang                         # seconds

Needs torch, and nothing else that SGLang needs: modules that the cache imports but does not use are
replaced by stand-ins. The recording is committed, so that `test_sglang_cache.py` needs no SGLang.

Source: a request's calls are those of `python/sglang/srt/mem_cache/common.py`: `match_prefix` and
`lock`, `checkpoint` after each chunk of the prompt, and `checkpoint` and `unlock` at its end.

Differs from a running SGLang: its queue matches a waiting request more than once.
"""

import argparse
import importlib.abc
import importlib.machinery
import sys
from array import array
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import msgspec

from tests.parity import FIXTURES
from tests.parity.radix_records import PAGE_SIZES, SETTINGS, Edge, History, ask, draw
from tests.parity.writing import write_lines

SEEDS = 1000
LONGEST = 1000  # tokens of a request; token p of request r has the KV index r * LONGEST + p
# SGLang modules that the radix cache imports and does not need.
STAND_INS = (
    "configs", "disaggregation", "distributed", "environ", "hardware_backend", "layers", "managers",
    "mem_cache.allocator", "mem_cache.common", "mem_cache.memory_pool", "observability",
    "platforms", "runtime_context", "server_args", "utils",
)  # fmt: skip


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook: a mock for the modules in `STAND_INS`, and for packages that are not installed."""

    def __init__(self, sglang: Path) -> None:
        self._sglang = str(sglang)
        self._names = tuple(f"sglang.srt.{name}" for name in STAND_INS)
        self._missing: set[str] = set()

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a mock's spec, or None where the ordinary import should go on."""
        top = name.partition(".")[0]
        wanted = top in self._missing or any(
            f"{name}.".startswith(f"{one}.") for one in self._names
        )
        if not wanted and top != "sglang" and self._imported_by_sglang():
            wanted = importlib.machinery.PathFinder.find_spec(name, path) is None
            wanted = wanted and name not in sys.builtin_module_names
            if wanted:
                self._missing.add(top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if wanted else None

    def _imported_by_sglang(self) -> bool:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename.startswith(self._sglang)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return a module where every attribute exists."""
        module = MagicMock(name=spec.name)
        module.__spec__, module.__path__, module.__name__ = spec, [], spec.name
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: there is no code."""


class Clock:
    """Replaces time.monotonic(), which may return the same time twice; here each reading is later."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 1.0
        return self._now


class Allocator:
    """Stands for SGLang's allocator and notes the KV indices that are freed."""

    device = "cpu"

    def __init__(self) -> None:
        self.freed: list[list[int]] = []

    def free_segment(self, indices: Any, start_pos: int = 0) -> None:
        """Note one segment: at an eviction, one edge."""
        self.freed.append(indices.tolist())


class Rows:
    """Stands for SGLang's request-to-token pool: a row of KV indices per request."""

    def __init__(self) -> None:
        import torch

        self.req_to_token = torch.zeros((64, LONGEST), dtype=torch.int64)

    def write(self, at: tuple[int, slice], indices: Any) -> None:
        """Set a part of a request's row."""
        self.req_to_token[at] = indices


class SGLangCache:
    """SGLang's `RadixCache`, asked as `radix_records.PrefixCache`."""

    def __init__(self, history: History, **params: Any) -> None:
        from sglang.srt.mem_cache import radix_cache
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams

        radix_cache.time.monotonic = Clock()
        self._sglang = radix_cache
        self._history = history
        self._pool, self._rows = Allocator(), Rows()
        self._live: dict[int, SimpleNamespace] = {}
        self._cache = radix_cache.RadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=self._rows,
                token_to_kv_pool_allocator=self._pool,
                page_size=history.page,
                **params,
            )
        )

    def match(self, request: int, prompt: list[int]) -> int:
        """Match all but the last token, whose logits are needed, and lock."""
        import torch
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams

        key = self._sglang.RadixKey(array("q", prompt[:-1]))
        found = self._cache.match_prefix(MatchPrefixParams(key=key))
        node, cached = found.last_device_node, found.device_prefix_len
        row = torch.arange(LONGEST, dtype=torch.int64) + request * LONGEST
        row[:cached] = self._cache.path_device_indices(node)
        self._rows.req_to_token[request] = row
        kv = SimpleNamespace(
            req_pool_idx=request,
            cache_protected_len=cached,
            cache_inserted_len=0,
            swa_evict_floor=0,
        )
        self._live[request] = SimpleNamespace(
            kv=kv,
            extra_key=None,
            cache_salt=None,
            priority=None,
            origin_input_ids=prompt,
            last_node=node,
            lock=self._cache.lock(node),
        )
        return int(cached)

    def checkpoint(self, request: int, tokens: list[int]) -> None:
        """Insert full pages, free duplicates and move the lock."""
        one = self._live[request]
        one.full_untruncated_fill_ids = array("q", tokens)
        self._cache.checkpoint(one, up_to=len(tokens))

    def release(self, request: int) -> None:
        """Unlock."""
        self._cache.unlock(self._live.pop(request).lock)

    def evict(self, tokens: int) -> list[Edge]:
        """Evict, and name each edge by the tokens of the request that first computed it."""
        return [
            Edge(self._history.tokens(request)[:end], end - start)
            for request, start, end in self.evict_segments(tokens)
        ]

    def evict_segments(self, tokens: int) -> list[list[int]]:
        """Evict, and return (request, start, end) of each edge."""
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        self._pool.freed = []
        self._cache.evict(EvictParams(num_tokens=tokens))
        segments = []
        for indices in self._pool.freed:
            request, start = divmod(indices[0], LONGEST)
            assert indices == list(range(indices[0], indices[0] + len(indices)))
            segments.append([request, start, start + len(indices)])
        return segments


def played(
    setting: str, seed: int, page: int, **params: Any
) -> Iterator[tuple[History, SGLangCache]]:
    """Draw one history while SGLang answers. Yield it and the cache after each operation."""
    cache: SGLangCache | None = None
    for history, operation in draw(setting, seed, page):
        cache = cache or SGLangCache(history, **params)
        if operation[0] == "evict":
            history.operations.append([*operation, cache.evict_segments(operation[1])])
        else:
            found = ask(cache, history, operation)
            history.operations.append(operation if found is None else [*operation, found])
        yield history, cache


def record(setting: str, seed: int) -> History:
    """Return one history with SGLang's answers."""
    *_, (history, _) = played(setting, seed, PAGE_SIZES[seed % len(PAGE_SIZES)])
    return history


def import_sglang(folder: Path) -> str:
    """Make `sglang` importable from a folder and return its version. Exits if it is not there."""
    versions = [
        one.version for one in distributions(path=[str(folder)]) if one.metadata["Name"] == "sglang"
    ]
    if not versions:
        sys.exit(
            f"{folder} has no sglang; install it there with: "
            f"python -m pip install --no-deps --target {folder} sglang"
        )
    sys.path.insert(0, str(folder.resolve()))
    sys.meta_path.insert(0, StandIns(folder.resolve()))
    return versions[0]


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what SGLang's RadixCache decides.")
    parser.add_argument("--sglang", type=Path, required=True, help="folder with the sglang package")
    parser.add_argument("--out", type=Path, default=FIXTURES / "sglang.jsonl.gz")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="histories per setting")
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    version = import_sglang(options.sglang)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    histories = [record(setting, seed) for setting in SETTINGS for seed in seeds]
    header = {"engine": "sglang", "version": version, "cache": "RadixCache", "eviction": "lru"}
    lines = [msgspec.to_builtins(history) for history in histories]
    write_lines(options.out, [header | {"histories": len(lines)}, *lines])
    print(f"{len(lines)} histories: {options.out}, {options.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
