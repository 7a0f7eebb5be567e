"""The process of one device: `main`, which `forks.py` starts.

Commands come through standard input and answers go through standard output, both pickled. The process
ends with its input, so it never outlives its engine, even if it computes or waits for another device
at that moment.
"""

import os
import pickle
import queue
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch

from engine.core.compute.device import CPU
from engine.core.compute.kv_cache import KVCache
from engine.core.compute.mirror import Mirror, MirroredAttention
from engine.core.compute.model import Batch, Group
from engine.models.loader import open_model
from engine.models.threads import set_threads
from engine.parallel.decoder import ParallelDecoder
from engine.parallel.lanes import Call
from engine.parallel.links import Links
from engine.parallel.settings import Parallel
from engine.parallel.shards import Shard, ShardedCheckpoint, check_division


class Setup(NamedTuple):
    """What a device has to load; see `Parallel` and `Links`."""

    parallel: Parallel
    rank: int
    path: Path
    dtype: str
    store: str
    threads: int
    cuts: dict[str, tuple[range, range]]


class Loaded(NamedTuple):
    """What a device has loaded."""

    parameters: int
    weight_bytes: int


class Microbatch(NamedTuple):
    """The fields of a `Batch` that a forward pass reads, as plain values."""

    token_ids: list[int]
    positions: list[int]
    slot_mapping: list[int]
    logits_indices: list[int]
    groups: list[Group]

    @classmethod
    def of(cls, batch: Batch) -> "Microbatch":
        """Return what another process needs of a batch."""
        fields = batch.token_ids, batch.positions, batch.slot_mapping, batch.logits_indices
        ids, positions, slots, indices = (tensor.tolist() for tensor in fields)
        return cls(ids, positions, slots, indices, batch.groups)

    def batch(self) -> Batch:
        """Return the batch."""
        ids, positions, slots, indices = (
            torch.tensor(values, dtype=torch.int64) for values in self[:4]
        )
        return Batch(ids, positions, slots, indices, False, [], self.groups)


class Computed(NamedTuple):
    """The answer to a step.

    logits  of each microbatch, as bytes, on the one device that has them
    loads   the expert loads of each microbatch
    """

    began: int
    calls: list[Call]
    logits: list[bytes]
    loads: list[list[list[int]]]
    ended: int


class Worker:
    """A device's commands; each method is one."""

    def __init__(self, setup: Setup) -> None:
        set_threads(setup.threads)
        found = open_model(setup.path, setup.dtype, "cpu")
        config = check_division(setup.parallel, found.config, found.weights)
        self._shard = Shard(setup.parallel, config, setup.rank, setup.cuts)
        self._links = Links(self._shard, setup.store, setup.parallel.timeout_s)
        weights = ShardedCheckpoint(setup.path, found.weights.dtype, self._shard)
        weights.device = CPU
        self._model = ParallelDecoder(self._shard, weights, self._links)
        self._cache: KVCache | None = None
        self.loaded = Loaded(self._model.num_parameters, self._model.weight_bytes)

    def reserve(
        self, num_blocks: int, block_size: int, pages: int | None, kv_dtype: str, positions: int
    ) -> tuple[tuple[int, ...], int, int, str]:
        """Allocate KV memory. Return shape and bytes of a page, all bytes, and the fingerprint."""
        cache = self._cache = KVCache(
            self._model.config,
            num_blocks,
            block_size,
            self._model.dtype,
            num_window_pages=pages,
            codec=self._model.kv_codec(kv_dtype),
        )
        cache.mirror = Mirror(self._model.config, cache)
        self._model.prepare(positions)
        return cache.page_shape, cache.page_bytes, cache.nbytes, self._model.fingerprint

    def copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy blocks."""
        self._kv.copy(copies)

    def map_window_pages(self, pages: Sequence[tuple[int, int]]) -> None:
        """Note which block has which window page, if this stage has sliding layers."""
        if self._kv.has_window_pages:
            self._kv.map_window_pages(pages)

    def read_pages(self, blocks: Sequence[int]) -> bytes:
        """Return this device's part of the pages of blocks."""
        return self._kv.read_pages(blocks)

    def write_pages(self, blocks: Sequence[int], pages: bytes) -> None:
        """Write this device's part of pages."""
        self._kv.write_pages(blocks, memoryview(pages))

    @property
    def _kv(self) -> KVCache:
        assert self._cache is not None
        return self._cache

    @torch.inference_mode()
    def run(self, microbatches: Sequence[Microbatch]) -> Computed:
        """Compute one step."""
        began = time.perf_counter_ns()
        logits, loads = list[bytes](), list[list[list[int]]]()
        has_logits = self._shard.is_last and self._shard.part == 0
        for one in microbatches:
            batch = one.batch()
            attend = MirroredAttention(self._model.config, self._kv, batch)
            outputs = batch.logits_indices
            if not self._shard.is_last:
                outputs = torch.arange(len(batch.token_ids))  # the next stage gets all tokens
            result = self._model.forward(batch.token_ids, batch.positions, attend, outputs)
            loads.append(self._model.expert_loads)
            if has_logits:
                logits.append(result.contiguous().numpy().tobytes())
        calls = self._links.end_step()
        return Computed(began, calls, logits, loads, time.perf_counter_ns())


def serve(commands: BinaryIO, answers: BinaryIO) -> None:
    """Obey commands until the input ends: (method, arguments), each of which gets one answer.

    An answer is (None, result), or (traceback, None).
    """
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                waiting.put(pickle.load(commands))
        except (EOFError, OSError, pickle.UnpicklingError):
            os._exit(0)  # the engine has ended; the main thread may wait for another device

    threading.Thread(target=read, daemon=True).start()
    worker: Worker | None = None
    while True:
        method, arguments = waiting.get()
        try:
            if worker is None:
                worker = Worker(*arguments)
                answer: Any = (None, worker.loaded)
            else:
                answer = (None, getattr(worker, method)(*arguments))
        except Exception as error:
            answer = (f"{type(error).__name__}: {error}\n{traceback.format_exc()}", None)
        pickle.dump(answer, answers)
        answers.flush()


def main() -> None:
    """Run a worker on standard input and output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not get into the answers
    serve(sys.stdin.buffer, answers)
