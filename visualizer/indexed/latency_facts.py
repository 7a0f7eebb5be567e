"""How long requests waited for their tokens, while a log is folded.

A page draws its row of figures from it without the steps of all tokens, which are most of an index.
`visualizer/frontend/src/model/run_summary.ts` computes the same from a log that has no index.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, cast

from engine.simulation.latencies import PausedTime
from engine.simulation.quantile import quantile
from visualizer.indexed.facts import Request, Time
from visualizer.indexed.step_facts import StepFacts

# The shares, and how many values each needs to mean something.
_PERCENTILES = {"p50": (0.5, 1), "p95": (0.95, 20), "p99": (0.99, 100)}
_SLOW = 0.99  # the quantile of a request's times between tokens that a limit is about


class LatencyFacts:
    """The latencies of requests that have ended, and how often each time between tokens occurred."""

    def __init__(self, steps: StepFacts, paused: PausedTime) -> None:
        self._steps, self._paused = steps, paused
        self._gaps = Counter[float]()

    def add(self, request: Request) -> None:
        """Set the latencies of a request all of whose steps are over."""
        ends = list(map(self._steps.end_of, request.token_steps))
        gaps = [end - begin - self._between(begin, end) for begin, end in pairwise(ends)]
        gaps = [gap for gap in gaps if not math.isnan(gap)]
        self._gaps.update(gaps)
        request.slowest = quantile(gaps, _SLOW) if gaps else 0
        arrived = request.arrived_at
        if ends and arrived is not None and not math.isnan(ends[0]):
            request.ttft = ends[0] - arrived - self._between(arrived, ends[0])

    def percentiles(self) -> list[tuple[str, Time]]:
        """Return the percentiles that the times between tokens support, and the maximum."""
        values = Repeated(self._gaps)
        known = [
            (name, quantile(values, share, is_sorted=True))
            for name, (share, least) in _PERCENTILES.items()
            if len(values) >= least
        ]
        return [*known, ("max", values[-1])] if known else []

    def _between(self, begin: float, end: float) -> float:
        # Most logs have no pause, and a long one has many tokens.
        paused = self._paused
        return paused.between(cast("int", begin), cast("int", end)) if paused.intervals else 0


class Repeated(Sequence[float]):
    """The sorted values of a counter, each as often as it was counted."""

    def __init__(self, counts: Counter[float]) -> None:
        self._values = sorted(counts)
        self._ends = list(accumulate(counts[one] for one in self._values))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: Any) -> Any:
        return self._values[bisect_right(self._ends, index % len(self))]
