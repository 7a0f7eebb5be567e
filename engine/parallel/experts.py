"""Experts on several devices, and each token sent to those that it chose: an all-to-all.

    own       a device takes its share of the tokens, which all devices have, and routes them
    counts    how many copies of tokens each device will get, for which expert
    dispatch  the copies, to the devices with their experts
    combine   the results, back to the tokens' device, which adds them up
    gather    all tokens on all devices again, for the next layer's attention

Every operation waits for the slowest device, and the busiest expert makes one slow. For each token a
ring all-reduce sends 2 (p - 1) vectors among p devices; this sends 2 k (p - 1) / p of them to and from
k experts, and p - 1 to gather. So it pays where k is less than half of p, or where tokens are divided
anyway: if attention is data parallel, no device has all of them.

Source: `Qwen3MoeSparseMoeBlock` in `vllm/model_executor/models/qwen3_moe.py` with
`use_sequence_parallel_moe`, which takes each device's chunk of the tokens, and DeepEP's kernels
(`--all2all-backend deepep_high_throughput`), which exchange counts before they dispatch. vLLM's
default, `allgather_reducescatter` (`AgRsAll2AllManager` in
`vllm/distributed/device_communicators/all2all.py`), sends all tokens to all devices instead; "naive"
and "pplx" are gone from vLLM.

Differs from vLLM, which does this only if attention is data parallel, too; and from DeepEP, which sends
a token once to each device, however many of its experts are there.
"""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.models.moe import MixtureOfExperts
from engine.parallel.links import Links
from engine.parallel.shards import Shard


class Dispatched:
    """A mixture of experts, of which this device has a part, for tokens that all devices have."""

    def __init__(self, mixture: MixtureOfExperts, shard: Shard, links: Links) -> None:
        self._mixture, self._links, self._part = mixture, links, shard.part
        self._devices, self._experts = shard.parallel.tensor, shard.config.num_experts
        bounds = [self._experts * one // self._devices for one in range(self._devices + 1)]
        self._sizes = [end - start for start, end in pairwise(bounds)]
        self._own = range(bounds[self._part], bounds[self._part + 1])
        self._compute_own, mixture.compute = mixture.compute, self._compute  # type: ignore[method-assign]

    @property
    def loads(self) -> list[int]:
        """How many of this device's tokens chose each expert, of this device or another."""
        return self._mixture.loads

    def __call__(self, x: Tensor) -> Tensor:
        """Return the output for `x` [tokens, hidden], on all devices."""
        share = -(-len(x) // self._devices)
        own = self._mixture(x[self._part * share : (self._part + 1) * share])
        return self._links.all_gather(pad(own, (0, 0, 0, share - len(own))))[: len(x)]

    def _compute(self, copies: Tensor, loads: list[int]) -> Tensor:
        """Return the results for copies of own tokens, sorted by expert and thus by device."""
        own, links = self._own, self._links
        chosen = torch.tensor(loads)
        # [devices, own experts]: the copies that each device sends to each expert of this one
        coming = links.all_to_all(chosen, self._sizes, [len(own)] * self._devices)
        coming = coming.view(self._devices, len(own))
        sent = [int(part.sum()) for part in chosen.split_with_sizes(self._sizes)]
        received = coming.sum(1).tolist()
        arrived = links.all_to_all(copies, sent, received)
        experts = torch.arange(len(own)).repeat(self._devices).repeat_interleave(coming.flatten())
        order = experts.argsort(stable=True)
        counts = [0] * self._experts
        counts[own.start : own.stop] = coming.sum(0).tolist()
        results = self._compute_own(arrived.index_select(0, order), counts)
        back = torch.empty_like(results).index_copy_(0, order, results)
        return links.all_to_all(back, received, sent)
