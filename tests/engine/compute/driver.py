"""Drives a TorchRunner by hand: requests with block tables, without scheduler, pool or tree."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from engine.core.compute.model import ModelConfig
from engine.core.compute.torch_runner import TorchRunner
from engine.core.request import Request
from engine.core.runner import Row, Sampled
from engine.core.sampling_params import SamplingParams
from engine.models.config_file import read_config
from engine.models.loader import build
from engine.models.weights.checkpoint import Checkpoint

BLOCK_SIZE = 4


class Driver:
    """A runner, and blocks handed out in an order that `seed` decides."""

    def __init__(
        self,
        directory: Path,
        change: Callable[[ModelConfig], ModelConfig] = lambda config: config,
        num_blocks: int = 64,
        block_size: int = BLOCK_SIZE,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`change` is applied to the model's configuration."""
        config = change(read_config(directory))
        model = build(config, Checkpoint(directory, dtype))
        self.runner = TorchRunner(model, name="driven")
        self.runner.reserve(num_blocks, block_size)
        self.block_size = block_size
        self.free = list(range(num_blocks))
        random.Random(seed).shuffle(self.free)
        self._ids = iter(range(1, 1_000_000))
        self.poison()

    @property
    def kv(self) -> torch.Tensor:
        return self.runner.kv_cache.tensor

    def poison(self, requests: Sequence[Request] = ()) -> None:
        """Fill every slot that holds no computed token of these requests with NaN."""
        held = torch.zeros(self.kv.shape[1:3], dtype=torch.bool)
        for request in requests:
            for position in range(request.num_computed_tokens):
                held[
                    request.block_table[position // self.block_size], position % self.block_size
                ] = True
        for memory in (self.kv, self.runner.kv_cache.window_tensor):
            memory[:, ~held] = float("nan")

    def request(self, tokens: Sequence[int], **params) -> Request:
        id_, params = next(self._ids), SamplingParams(**params)
        seed = id_ if params.seed is None else params.seed
        return Request(id_, list(tokens), [], params, seed=seed, prompt_length=len(tokens))

    def row(
        self,
        request: Request,
        count: int | None = None,
        drafts: Sequence[int] = (),
        samples: Sequence[int] | None = None,
    ) -> Row:
        """The next `count` uncomputed tokens, all by default, then `drafts`."""
        count = request.num_uncomputed_tokens if count is None else count
        end = request.num_computed_tokens + count + len(drafts)
        while len(request.block_table) * self.block_size < end:
            request.block_table.append(self.free.pop())
        if samples is None:
            samples = [request.sample] if count == request.num_uncomputed_tokens else []
        return Row(
            request, request.num_computed_tokens, count + len(drafts), list(drafts), list(samples)
        )

    def run(self, rows: Sequence[Row], copies=()) -> list[list[Sampled]]:
        """One step; the first sample's tokens are appended to the row's request."""
        results = self.runner.run(rows, copies)
        for row, samples in zip(rows, results, strict=True):
            row.request.num_computed_tokens = row.start + row.count - len(row.drafts)
            if samples:
                row.request.tokens += samples[0].ids
                row.request.logprobs += samples[0].logprobs
                row.request.num_computed_tokens += len(samples[0].ids) - 1
        return results

    def logits(self, rows: Sequence[Row]) -> torch.Tensor:
        """What the sampler of this step is given: [logits, vocab]. The requests do not advance."""
        seen = []
        forward = self.runner._model.forward
        self.runner._model.forward = lambda *a: seen.append(forward(*a)) or seen[-1]
        try:
            self.runner.run(rows, [])
        finally:
            self.runner._model.forward = forward
        return seen[0]
