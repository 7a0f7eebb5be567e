"""What the devices send to each other, over `torch.distributed` with gloo, and a record of it.

Real engines use NCCL between GPUs, and gloo for control messages
(`vllm/distributed/parallel_state.py`); the operations and the bytes are the same.
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from engine.parallel.lanes import Call
from engine.parallel.shards import Shard


class Links:
    """The connections of one device. `calls` are those of the step so far.

    store  path of a file in which the devices find each other
    """

    def __init__(self, shard: Shard, store: str, timeout_s: float) -> None:
        name = {"linux": "lo", "darwin": "lo0"}.get(sys.platform)
        if name is not None:
            os.environ["GLOO_SOCKET_IFNAME"] = name  # nothing leaves this machine
        parallel = self._parallel = shard.parallel
        self._shard = shard
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=shard.rank,
            world_size=parallel.devices,
            timeout=timedelta(seconds=timeout_s),
        )
        stages = [
            [stage * parallel.tensor + part for part in range(parallel.tensor)]
            for stage in range(parallel.pipeline)
        ]
        groups = [dist.new_group(ranks) for ranks in stages]  # every process makes all groups
        self._stage, self._ranks = groups[shard.stage], stages[shard.stage]
        self._sent: list[tuple[dist.Work | None, Tensor]] = []
        self.calls: list[Call] = []

    def _note(self, kind: str, entered: int, x: Tensor) -> None:
        self.calls.append(Call(kind, entered, time.perf_counter_ns(), x.nbytes))

    def all_reduce(self, x: Tensor) -> Tensor:
        """Add the tensors of all devices of the stage, in place."""
        if self._parallel.tensor > 1:
            entered = time.perf_counter_ns()
            dist.all_reduce(x, group=self._stage)
            self._note("all_reduce", entered, x)
        return x

    def gather(self, x: Tensor, sizes: list[int]) -> Tensor:
        """Return the tensors [rows, sizes[part]] of all parts side by side, on the first of them.

        The others get their own back.
        """
        if self._parallel.tensor == 1:
            return x
        entered = time.perf_counter_ns()
        wide = torch.nn.functional.pad(x, (0, max(sizes) - x.shape[1])).contiguous()
        parts = [torch.empty_like(wide) for _ in sizes] if self._shard.part == 0 else None
        dist.gather(wide, parts, dst=self._ranks[0], group=self._stage)
        self._note("gather", entered, wide)
        if parts is None:
            return x
        return torch.cat([part[:, :size] for part, size in zip(parts, sizes, strict=True)], dim=1)

    def all_gather(self, x: Tensor) -> Tensor:
        """Return the tensors of all devices of the stage, of one shape, one below the other."""
        entered = time.perf_counter_ns()
        parts = [torch.empty_like(x) for _ in self._ranks]
        dist.all_gather(parts, x, group=self._stage)
        self._note("all_gather", entered, x)
        return torch.cat(parts)

    def all_to_all(self, x: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Send each device of the stage its `sent` rows of `x`, and return the `received` ones."""
        entered, result = time.perf_counter_ns(), x.new_empty(sum(received), *x.shape[1:])
        dist.all_to_all_single(result, x, received, sent, group=self._stage)
        leaving = len(x) - sent[self._shard.part]
        self._note("all_to_all", entered, x[:leaving])
        return result

    def send(self, x: Tensor) -> None:
        """Send activations to the same part of the next stage, without waiting for it."""
        entered = time.perf_counter_ns()
        self._sent.append((dist.isend(x, self._shard.rank + self._parallel.tensor), x))
        self._note("send", entered, x)

    def receive(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return activations from the same part of the stage before."""
        entered, x = time.perf_counter_ns(), torch.empty(shape, dtype=dtype)
        dist.recv(x, self._shard.rank - self._parallel.tensor)
        self._note("recv", entered, x)
        return x

    def end_step(self) -> list[Call]:
        """Wait until everything is sent, and return the step's calls."""
        entered = time.perf_counter_ns()
        for work, x in self._sent:
            if work is not None:
                work.wait()
            self._note("sent", entered, x)
            entered = time.perf_counter_ns()
        self._sent.clear()
        calls, self.calls = self.calls, []
        return calls
