"""The decoder of one device: a smaller decoder, some of whose networks also talk to other devices."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from engine.models.decoder import Decoder
from engine.models.moe import MixtureOfExperts
from engine.parallel.experts import Dispatched
from engine.parallel.links import Links
from engine.parallel.shards import Shard, ShardedCheckpoint


class Summed:
    """A network whose results the devices of a stage add: what follows a row-parallel matrix."""

    def __init__(self, network: Callable[..., Tensor], links: Links) -> None:
        self._network, self._links = network, links

    def __call__(self, *arguments: Any) -> Tensor:
        """Return the sum over all devices."""
        return self._links.all_reduce(self._network(*arguments))

    @property
    def loads(self) -> list[int]:
        """How many tokens each expert got; [] for a dense network."""
        return getattr(self._network, "loads", [])


class ParallelDecoder(Decoder):
    """A part of a decoder, with the interface of a whole one.

    Only the first device of the last stage returns the logits of the whole vocabulary. In a stage
    before it, `logits_indices` has to name all tokens, because the output is what the next stage gets;
    it returns nothing of use.
    """

    def __init__(self, shard: Shard, weights: ShardedCheckpoint, links: Links) -> None:
        super().__init__(shard.local, weights)
        tensor, size = shard.parallel.tensor, shard.config.vocab_size
        sizes = [size * (part + 1) // tensor - size * part // tensor for part in range(tensor)]
        look_up, project = self._embedding, self._lm_head

        def of_own_tokens(token_ids: Tensor) -> Tensor:
            own = shard.tokens
            is_own = (token_ids >= own.start) & (token_ids < own.stop)
            x = look_up((token_ids - own.start).where(is_own, 0)).to(self._activations)
            return x.mul_(is_own[:, None])

        def received(token_ids: Tensor) -> Tensor:
            return links.receive((len(token_ids), self.config.hidden_size), self._activations)

        def gathered(x: Tensor) -> Tensor:
            return links.gather(project(x), sizes) if len(x) else x.new_empty(0, size)

        def sent(x: Tensor) -> Tensor:
            links.send(x)
            return torch.empty(0)

        if tensor > 1:
            for layer in self._layers:
                layer.attention = Summed(layer.attention, links)
                network = layer.feed_forward
                if shard.parallel.all_to_all and isinstance(network, MixtureOfExperts):
                    layer.feed_forward = Dispatched(network, shard, links)
                else:
                    layer.feed_forward = Summed(network, links)
            self._embedding = Summed(of_own_tokens, links)
        if not shard.is_first:
            self._embedding, self._embedding_scale = received, 1.0
        self._lm_head = gathered
        if not shard.is_last:
            self._norm, self._lm_head = nn.Identity(), sent
