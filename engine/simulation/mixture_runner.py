"""A simulated mixture of experts: a CostRunner whose router draws experts instead of computing them.

    simulate(workload, config, cost=MixtureRunner(10, 0.25, layers=8, experts=16, per_token=2))

Each layer has popular and unpopular experts: the popularity of the n-th is 1 / n ** skew (Zipf's law),
in an order drawn for the layer. A token at a position always gets the same experts, as it would after
the same prefix, so a recomputed token loads the experts that it loaded before.

A step that uses more experts reads more weights. `per_expert_ms` is the price of each expert of each
layer that has a token. That is why a mixture gains less from a small batch than a dense model: two
tokens seldom share their experts, so together they read nearly twice the weights.

Differs from a real router: there, the choice depends on the text, so a batch of similar texts is more
skewed than this one. For shares of real models see the Qwen3 report, arXiv:2505.09388, and OLMoE,
arXiv:2409.02060.
"""

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from engine.core.runner import Row
from engine.simulation.cost_runner import CostRunner


class MixtureRunner(CostRunner):
    """A machine with a mixture of experts.

    layers         all of them have experts
    per_token      experts that compute a token in each layer
    skew           0: all experts are equally popular; 1: the first is twice as popular as the second
    per_expert_ms  time to read the weights of one expert
    others         see `CostRunner`

    Raises ValueError for sizes that do not fit together.
    """

    def __init__(
        self,
        base_ms: float,
        per_token_ms: float,
        *,
        layers: int,
        experts: int,
        per_token: int,
        skew: float = 1.0,
        per_expert_ms: float = 0.0,
        **others: Any,
    ) -> None:
        super().__init__(base_ms, per_token_ms, **others)
        if layers < 1:
            raise ValueError(f"layers must be at least 1, got {layers}")
        if not 1 <= per_token <= experts:
            raise ValueError(f"per_token must be 1 to experts ({experts}), got {per_token}")
        if not 0 <= per_expert_ms < float("inf"):
            raise ValueError(f"per_expert_ms must be 0 or more milliseconds, got {per_expert_ms!r}")
        self._sizes = {"layers": layers, "experts": experts, "experts_per_token": per_token}
        self._per_expert_ms = per_expert_ms
        # The logarithm of each expert's popularity, by layer.
        zipf = [-skew * math.log(rank) for rank in range(1, experts + 1)]
        orders = random.Random(0)
        self._logits = [orders.sample(zipf, experts) for _ in range(layers)]
        self._route = lru_cache(maxsize=4096)(self._draw)

    def describe(self) -> dict[str, Any]:
        """Describe the runner, its prices and its experts."""
        price = {"per_expert_ms": self._per_expert_ms} if self._per_expert_ms else {}
        return super().describe() | {"name": "cost runner with experts"} | price | self._sizes

    def step_ms(self, rows: Sequence[Row], *, woken: bool) -> float:
        """Route the tokens of all rows, and return the milliseconds of the step."""
        loads = [[0] * len(logits) for logits in self._logits]
        for row in rows:
            known = row.request.tokens[row.start : row.start + row.count - len(row.drafts)]
            for position, token in enumerate([*known, *row.drafts], start=row.start):
                for layer, chosen in zip(loads, self._route(token, position), strict=True):
                    for expert in chosen:
                        layer[expert] += 1
        self.expert_loads = loads
        used = sum(load > 0 for layer in loads for load in layer)
        return super().step_ms(rows, woken=woken) + self._per_expert_ms * used

    def _draw(self, token: int, position: int) -> list[list[int]]:
        """Return the experts of a token in each layer.

        The k largest of logarithm plus Gumbel noise are k draws in proportion to popularity, without
        putting any back (arXiv:1903.06059).
        """
        draws = random.Random(f"0 {token} {position}")
        chosen = []
        for logits in self._logits:
            noisy = [logit - math.log(-math.log(draws.random() or 0.5)) for logit in logits]
            best = sorted(range(len(noisy)), key=noisy.__getitem__, reverse=True)
            chosen.append(best[: self._sizes["experts_per_token"]])
        return chosen
