"""The decoder of one device: a smaller decoder, and the sums between its layers and those of others."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.models.decoder import Decoder
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
    """A part of a decoder, with the interface of a whole one."""

    def __init__(self, shard: Shard, weights: ShardedCheckpoint, links: Links) -> None:
        super().__init__(shard.local, weights)
        self._shard, self._links = shard, links
        if shard.parallel.tensor > 1:
            for layer in self._layers:
                layer.attention = Summed(layer.attention, links)  # type: ignore[assignment]
                layer.feed_forward = Summed(layer.feed_forward, links)
        tensor, size = shard.parallel.tensor, shard.config.vocab_size
        self._sizes = [
            size * (part + 1) // tensor - size * part // tensor for part in range(tensor)
        ]

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return what the first layer of this stage gets: [tokens, hidden].

        Each device looks up the tokens that it has, and the sum has them all. A later stage receives
        what the stage before has computed.
        """
        if not self._shard.is_first:
            shape = len(token_ids), self.config.hidden_size
            return self._links.receive(shape, self._activations)
        if self._shard.parallel.tensor == 1:
            return super().embed(token_ids)
        own = self._shard.tokens
        is_own = (token_ids >= own.start) & (token_ids < own.stop)
        x = super().embed((token_ids - own.start).where(is_own, 0))
        return self._links.all_reduce(x.mul_(is_own[:, None]))

    def logits(self, x: Tensor, logits_indices: Tensor) -> Tensor:
        """Return the logits of the whole vocabulary on the first device of the last stage.

        A stage before sends `x` on. Every other device returns nothing of use.
        """
        if not self._shard.is_last:
            self._links.send(x)
            return torch.empty(0)
        if not len(logits_indices):
            return torch.empty(0, self._shard.config.vocab_size)
        return self._links.gather(super().logits(x, logits_indices), self._sizes)
