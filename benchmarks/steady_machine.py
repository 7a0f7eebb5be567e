"""How long a GPU of constant speed would take for a step, for `advice.py --steady`.

A Qwen3 4B on an NVIDIA A10, or a Qwen3 14B on an A100, by the data sheets and the roofline of
`engine/simulation/devices.py`: a layer lasts as long as its arithmetic or its reads of weights and KV,
whichever is longer. Three more things that vLLM's steps have on a GPU:

- tokens are padded to the next size for which vLLM has captured a CUDA graph;
- a step with a prompt launches its attention outside of a graph;
- steps of equal work differ: by 2 % (log-normal), and one in a hundred is late by a third on average.

So a step's time has not the form that `step_times.py` fits, and the proof is not circular.
"""

import random
from collections.abc import Sequence
from typing import Any

from engine.simulation.devices import NVLINK, Device, Division, Machine, StepLoad


def _qwen3(hidden: int, inner: int, layers: int, heads: int, *, tied: bool) -> dict[str, Any]:
    """Return the entries of a config.json that sizes depend on."""
    return {
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 40960,
        "torch_dtype": "bfloat16",
    }


MACHINES = {
    "A10": (_qwen3(2560, 9728, 36, 32, tied=True), Device("A10", 24, 600, 125)),
    "A100": (_qwen3(5120, 17408, 40, 40, tied=False), Device("A100 SXM", 80, 2039, 312)),
}
CAPTURED = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))  # vLLM's default sizes
ATTENTION_MS = 1.5  # to launch attention, layer by layer
SPREAD = 0.02
LATE, LATE_BY = 0.01, 1 / 3


class SteadyMachine:
    """Draws the times of steps. The draws are seeded."""

    def __init__(self, name: str, seed: int) -> None:
        entries, device = MACHINES[name]
        self._machine = Machine(entries, Division(), device, NVLINK)
        self._rng = random.Random(seed)

    def step_ms(self, rows: Sequence[tuple[int, int]]) -> float:
        """Return the milliseconds of a step. Each row: its tokens, and its context with them."""
        tokens = sum(count for count, _ in rows)
        load = StepLoad(
            tokens=next((size for size in CAPTURED if size >= tokens), tokens),
            context=sum(end for _, end in rows),
            pairs=sum(count * end for count, end in rows),
            rows=len(rows),
        )
        lasts = self._machine.price(load).total + ATTENTION_MS * (tokens > len(rows))
        lasts *= self._rng.lognormvariate(0.0, SPREAD)
        if self._rng.random() < LATE:
            lasts *= 1 + self._rng.expovariate(1 / LATE_BY)
        return lasts
