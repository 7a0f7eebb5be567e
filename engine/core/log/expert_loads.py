"""How many tokens each expert of a mixture computed: the log's compact form, and its figures.

A model of 48 layers with 128 experts has 6,144 loads per step. In a step with one token, 8 of 128 are
not 0; in a long prefill nearly all are. So a layer is the list of its loads in which -n stands for n
idle experts in a row: [0, 0, 3, 0, 1] is written as [-2, 3, -1, 1]. It is never longer than the list of
all loads, and with one token about as short as pairs of expert and load.

Real engines keep the same counts to balance experts between devices: vLLM's `expert_load_pass`
(`vllm/distributed/eplb/eplb_state.py`), SGLang's `python/sglang/srt/eplb/expert_distribution.py`.

Differs from vLLM: vLLM keeps only the sums over recent passes. Differs from SGLang: in SGLang, the
recorder's mode says whether it keeps sums (`stat`) or single passes (`per_pass`). Here the log has the
counts of each step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

MOST_EXPERTS = 65_536  # a damaged number would fill the memory


def packed(loads: Sequence[int]) -> list[int]:
    """Return the loads of a layer with each run of n zeros as -n."""
    layer: list[int] = []
    for load in loads:
        if load == 0 and layer and layer[-1] < 0:
            layer[-1] -= 1
        else:
            layer.append(load or -1)
    return layer


def unpacked(layer: Sequence[int]) -> list[int]:
    """Return one load per expert; undoes `packed`. A 0 is one idle expert.

    Raises ValueError for more than MOST_EXPERTS.
    """
    if sum(max(1, -load) for load in layer) > MOST_EXPERTS:
        raise ValueError(f"a layer has at most {MOST_EXPERTS} experts")
    return [one for load in layer for one in ([load] if load > 0 else [0] * (-load or 1))]


def summed(loads: list[list[int]], layers: Sequence[Sequence[int]]) -> list[list[int]]:
    """Add the packed loads of a step to those of all steps before, of which there may be none.

    Raises ValueError if the numbers of layers or experts differ.
    """
    step = [unpacked(layer) for layer in layers]
    if not loads:
        return step
    return [
        [before + load for before, load in zip(*both, strict=True)]
        for both in zip(loads, step, strict=True)
    ]


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
        from visualizer.reading.messages import expert_load_words

        return expert_load_words(self)
