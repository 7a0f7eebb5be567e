"""The load of each expert of a mixture, and how uneven the loads are.

`engine/core/log/expert_loads.py` packs the loads for the log.
"""

from dataclasses import dataclass
from typing import NamedTuple

from visualizer.reading.messages import expert_load_words


class Busiest(NamedTuple):
    """The expert with the most tokens, and its load as a multiple of the mean of its layer."""

    layer: int
    expert: int
    tokens: int
    times_mean: float


@dataclass(frozen=True, slots=True)
class ExpertLoads:
    """How many tokens each expert computed: `layers[3][17]` for expert 17 of layer 3.

    Layers and experts count from 0, as in the names of the weights. A layer without experts is [].
    """

    layers: list[list[int]]

    @property
    def busiest(self) -> Busiest:
        """The busiest expert; of several, the first."""
        tokens, layer = max((max(loads), -i) for i, loads in enumerate(self.layers) if loads)
        expert = self.layers[-layer].index(tokens)
        return Busiest(-layer, expert, tokens, self.imbalance(-layer))

    def imbalance(self, layer: int) -> float:
        """Return the largest load of a layer as a multiple of the mean; 1 is perfect balance.

        With one device per expert, all others would wait that long for the busiest one.
        """
        loads = self.layers[layer]
        return max(loads) * len(loads) / max(1, sum(loads))

    @property
    def idle(self) -> int:
        """The number of experts without a token, in all layers."""
        return sum(loads.count(0) for loads in self.layers)

    @property
    def experts(self) -> int:
        """The number of experts in all layers."""
        return sum(map(len, self.layers))

    def __str__(self) -> str:
        return expert_load_words(self)
