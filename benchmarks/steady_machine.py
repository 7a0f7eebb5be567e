"""How long a GPU of constant speed would take for a step, for `advice.py --steady`.

A Qwen3 4B on an NVIDIA A10, by its data sheet and the roofline of `engine/simulation/devices.py`: a
layer lasts as long as its arithmetic or its reads of weights and KV, whichever is longer. Three more
things that vLLM's steps have on a GPU:

- tokens are padded to the next size for which vLLM has captured a CUDA graph;
- a step with a prompt launches its attention outside of a graph;
- steps of equal work differ: by 2 % (log-normal), and one in a hundred is late by a third on average.

So a step's time is no sum of prices, which is what `step_times.py` fits: the proof is not circular.
"""

import random
from collections.abc import Sequence

from engine.simulation.devices import NVLINK, Device, Division, Machine, StepLoad

A10 = Device("A10", 24, 600, 125)
QWEN3_4B = {
    "model_type": "qwen3",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
CAPTURED = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))  # vLLM's default sizes
ATTENTION_MS = 1.5  # to launch attention, layer by layer
SPREAD = 0.02
LATE, LATE_BY = 0.01, 1 / 3


class SteadyMachine:
    """Draws the times of steps. The draws are seeded."""

    def __init__(self, seed: int) -> None:
        self._machine = Machine(QWEN3_4B, Division(), A10, NVLINK)
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
