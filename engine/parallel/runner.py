"""The engine's runner for a model on several devices.

It is the runner of one device (`engine/core/compute/torch_runner.py`) with another model and another
KV memory behind it: the forward pass happens in other processes, and sampling here.

A pipeline's stages overlap because the rows of a step are divided into microbatches: while the second
stage computes the first microbatch, the first stage computes the second one. vLLM fills its pipeline
with the batches of consecutive steps, of which no request is in two (`step_with_batch_queue` in
`vllm/v1/engine/core.py`), so that its batches stay whole.
"""

import hashlib
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.core.compute.device import activation_dtype, dtype_name
from engine.core.compute.model import Batch
from engine.core.compute.torch_runner import TorchRunner, make_batch
from engine.core.config import ConfigError
from engine.core.runner import Row, Sampled
from engine.models import loader
from engine.models.config import LlamaConfig
from engine.models.memory import InMemory
from engine.models.text.hf_tokenizer import HFTokenizer
from engine.models.threads import set_threads
from engine.parallel.devices import Devices
from engine.parallel.lanes import Span, lanes
from engine.parallel.settings import Parallel
from engine.parallel.shards import check_division, own_cuts
from engine.parallel.worker import Computed, Loaded, Microbatch, Setup


def load(
    parallel: Parallel,
    model: str | Path,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    **options: Any,
) -> "tuple[ParallelRunner, HFTokenizer]":
    """Start the devices and let them load their parts; see `Parallel.load`."""
    threads = set_threads()
    if device != "cpu":
        raise ConfigError(f"device must be cpu for a model in several processes, got {device!r}")
    found = loader.open_model(model, dtype, device)
    config = check_division(parallel, found.config, found.weights)
    loader.plan(
        model, options.pop("engine", None), dtype=dtype, device=device, **options
    ).check()  # all devices share this machine's memory
    tokenizer = found.tokenizer()
    name = dtype_name(found.weights.dtype)
    divided = ParallelModel(parallel, config, found.path, name, threads)
    return ParallelRunner(divided, found.name), tokenizer


class ParallelModel(InMemory):
    """A model whose forward pass runs on several devices; see `engine.core.compute.model.Model`.

    rows    those of the step, which the runner sets before `forward`
    lanes   the spans of each device, of all steps that have not been recorded yet
    """

    def __init__(
        self, parallel: Parallel, config: LlamaConfig, path: Path, dtype: str, threads: int
    ) -> None:
        self.parallel = parallel
        self.config: LlamaConfig = config
        self.dtype, self.device = getattr(torch, dtype), torch.device("cpu")
        self.kernels: Mapping[str, str] = {}
        self.expert_loads: list[list[int]] = []
        self.rows: Sequence[Row] = ()
        self.block_size = 0
        self.fingerprint = ""
        self.lanes: deque[list[list[Span]]] = deque()
        cuts = own_cuts(parallel, config)
        self.devices = Devices(parallel)
        plain, store = replace(parallel, cut=None), f"{self.devices.store}/store"
        setups = [
            (Setup(plain, rank, path, dtype, store, threads, cuts[rank % parallel.tensor]),)
            for rank in range(parallel.devices)
        ]
        loaded: list[Loaded] = self.devices.call("load", setups)
        self.num_parameters = sum(one.parameters for one in loaded)
        self.weight_bytes = sum(one.weight_bytes for one in loaded)

    def prepare(self, positions: int) -> None:
        """Do nothing: `DeviceKV` has told the devices."""

    def check_kv(
        self, num_blocks: int, block_size: int, num_window_pages: int | None, kv_dtype: str = "auto"
    ) -> None:
        """Do nothing: the memory plan has been checked, and each device reports what does not fit."""

    def forward(
        self, token_ids: Tensor, positions: Tensor, attend: Any, logits_indices: Tensor
    ) -> Tensor:
        """Return the logits of the step's batch, which takes the place of `attend`."""
        began = time.perf_counter_ns()
        batches: list[Batch] = [attend]
        if self.parallel.pipeline > 1:
            count = min(self.parallel.microbatches, len(self.rows))
            cuts = [len(self.rows) * one // count for one in range(count + 1)]
            batches = [
                make_batch(self.rows[start:end], self.block_size) for start, end in pairwise(cuts)
            ]
        answers: list[Computed] = self.devices.call_all("run", [*map(Microbatch.of, batches)])
        tensor = self.parallel.tensor
        steps = [(one.began, one.calls, one.ended) for one in answers]
        self.lanes.append(lanes(began, steps, tensor))
        if self.config.num_experts:
            # With an all-to-all, a device has routed its own tokens only.
            parts_of = tensor if self.parallel.all_to_all else 1
            stages = [answers[first : first + parts_of] for first in range(0, len(answers), tensor)]
            self.expert_loads = [
                [sum(loads) for loads in zip(*layer, strict=True)]
                for stage in stages
                for layer in zip(*(one for device in stage for one in device.loads), strict=True)
            ]
        parts = [
            torch.from_numpy(np.frombuffer(one, np.float32).copy()).view(-1, self.config.vocab_size)
            for one in answers[-tensor].logits
        ]
        # Each microbatch has the logits to sample from first, then those of scored prompts.
        sampled = [len(batch.logit_positions) for batch in batches]
        first = [part[:count] for part, count in zip(parts, sampled, strict=True)]
        rest = [part[count:] for part, count in zip(parts, sampled, strict=True)]
        return torch.cat([*first, *rest])


class DeviceKV:
    """The KV memory of all devices, with the interface of a `KVCache`.

    A page is the parts of all devices, one after the other.
    """

    def __init__(
        self,
        model: ParallelModel,
        num_blocks: int,
        block_size: int,
        pages: int | None,
        kv_dtype: str,
    ) -> None:
        self._devices = model.devices
        self.num_blocks, self.block_size = num_blocks, block_size
        self.has_window_pages = pages is not None and model.config.window is not None
        self.activation_dtype = activation_dtype(model.dtype, model.device)
        positions = min(model.config.max_context, num_blocks * block_size)
        made = self._devices.call_all("reserve", num_blocks, block_size, pages, kv_dtype, positions)
        self.codec = model.kv_codec(kv_dtype)
        shapes, self._sizes, sizes, fingerprints = zip(*made, strict=True)
        self.page_shape = tuple(value for shape in shapes for value in shape)
        self.page_bytes, self.nbytes = sum(self._sizes), sum(sizes)
        self.fingerprint = hashlib.sha256("".join(fingerprints).encode()).hexdigest()

    def copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """See `KVCache`."""
        self._devices.call_all("copy", copies)

    def map_window_pages(self, pages: Sequence[tuple[int, int]]) -> None:
        """See `KVCache`."""
        self._devices.call_all("map_window_pages", pages)

    def read_pages(self, blocks: Sequence[int]) -> bytes:
        """See `KVCache`."""
        parts = self._devices.call_all("read_pages", list(blocks))
        return b"".join(
            part[at * size : (at + 1) * size]
            for at in range(len(blocks))
            for part, size in zip(parts, self._sizes, strict=True)
        )

    def write_pages(self, blocks: Sequence[int], pages: memoryview) -> None:
        """See `KVCache`."""
        starts = [sum(self._sizes[:rank]) for rank in range(len(self._sizes))]
        arguments = [
            b"".join(pages[at * self.page_bytes + start :][:size] for at in range(len(blocks)))
            for start, size in zip(starts, self._sizes, strict=True)
        ]
        self._devices.call("write_pages", [(list(blocks), one) for one in arguments])


class ParallelRunner(TorchRunner):
    """A runner whose model is on several devices. `close` ends their processes."""

    _model: ParallelModel

    def __init__(self, model: ParallelModel, name: str = "") -> None:
        super().__init__(model, name)
        self.attention: Any = _the_batch

    def describe(self) -> dict[str, Any]:
        """Describe the model, and how it is divided."""
        parallel = self._model.parallel
        if self.attention is not _the_batch:
            raise ConfigError("attention cannot be replaced in a model on several devices")
        division = {"tensor": parallel.tensor, "pipeline": parallel.pipeline}
        how = {"expert": parallel.expert, "all_to_all": parallel.all_to_all}
        return super().describe() | {"parallel": division | how}

    def reserve(
        self, num_blocks: int, block_size: int, num_window_pages: int | None = None
    ) -> None:
        """Let the devices allocate their parts of the KV cache."""
        model = self._model
        cache = DeviceKV(model, num_blocks, block_size, num_window_pages, self.kv_dtype)
        self.kv_cache = cache  # type: ignore[assignment]
        model.block_size, model.fingerprint = block_size, cache.fingerprint

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        """Compute a step, see `Runner`. Raises DeviceError."""
        self._model.rows = rows
        return super().run(rows, copies)

    def take_lanes(self) -> list[list[Span]]:
        """Return the lanes of the earliest step that has not been recorded; [] if there is none."""
        return self._model.lanes.popleft() if self._model.lanes else []

    def close(self) -> None:
        """End the devices' processes."""
        self._model.devices.close()


def _the_batch(_config: object, _cache: object, batch: Batch) -> Any:
    """Stand in for the attention of a step, which the devices compute themselves."""
    return batch
