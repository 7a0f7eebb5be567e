"""What it costs to fetch a block from a tier and to compute it again; see `tiers.py`.

Two machines, two ways to know:

modelled  a simulated machine knows its prices (`Cost.per_host_token_ms` and `per_disk_token_ms`), and
          a transfer moves its virtual clock
measured  on a real machine, a moving average of the transfers so far, and of the latest prefills in the
          log. As long as nothing has been measured, fetching costs 0, so it is tried

Source: SGLang's HiCache has fixed thresholds instead (`load_back_threshold` and `prefetch_threshold` in
`python/sglang/srt/mem_cache/hiradix_cache.py`): it fetches every prefix that is longer, whatever it
costs. vLLM's connector always fetches.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from engine.core.log import vocabulary as v

US_PER_MS = 1000
_LATEST = 400  # events of the log that are read for the price of computing
_WEIGHT = 0.25  # of the latest transfer in the moving average
_PREFILL = 8  # from how many tokens on a step counts as prefill


def fetch_or_compute(fetch_us: Sequence[float], compute_us: Sequence[float]) -> int:
    """Return how many of the next blocks to fetch; the ones after them are computed.

    The lists have a price for each block that a tier has, in the order of the prompt. Because a prefix
    has no holes, the fetched blocks are the first ones. If two numbers cost the same, the larger one
    is better: a machine that does not compute has time for others.
    """
    best, most, saved = 0, 0.0, 0.0
    for count, (fetch, compute) in enumerate(zip(fetch_us, compute_us, strict=True), start=1):
        saved += compute - fetch
        if saved >= most:
            best, most = count, saved
    return best


class Prices(Protocol):
    """Prices in microseconds, for `count` tokens from position `start` on."""

    def compute_us(self, start: int, count: int) -> float:
        """Return what the tokens add to the forward pass that computes them."""

    def fetch_us(self, tier: str, count: int) -> float:
        """Return how long their KV is on its way from a tier to the one above it."""

    def paid(self, tier: str, count: int, us: float) -> None:
        """Note how long a transfer took."""


class ModelledPrices:
    """The prices of a simulated machine: those of a `CostRunner`."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def compute_us(self, start: int, count: int) -> float:
        """See `Prices`."""
        row = v.ScheduledRow(-1, start, count)
        step: Callable[[Sequence[v.ScheduledRow]], float] = self._runner.rows_ms
        return (step([row]) - step([])) * US_PER_MS

    def fetch_us(self, tier: str, count: int) -> float:
        """See `Prices`."""
        cost = self._runner.cost
        price = cost.per_host_token_ms if tier == "host" else cost.per_disk_token_ms
        return float(price * count * US_PER_MS)

    def paid(self, tier: str, count: int, us: float) -> None:
        """Do nothing: the prices are known."""


class MeasuredPrices:
    """The prices of a real machine, from its transfers and from the log of its steps."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine  # a server replaces its log
        self._us_per_token: dict[str, float] = {}

    def compute_us(self, start: int, count: int) -> float:
        """See `Prices`. If the log has no prefill yet, return infinity, so that a block is fetched."""
        rows: dict[int, int] = {}
        tokens, us, step = 0, 0.0, 0
        for event in self._engine.log[-_LATEST:]:
            if isinstance(event, v.StepStarted):
                step = event.step
            elif isinstance(event, v.StepScheduled):
                rows[step] = sum(row.count for row in event.rows)
            elif isinstance(event, v.StepFinished) and rows.get(event.step, 0) >= _PREFILL:
                tokens += rows[event.step]
                us += event.t["end"] - event.t["scheduled"]
        return us / tokens * count if tokens else float("inf")

    def fetch_us(self, tier: str, count: int) -> float:
        """See `Prices`."""
        return self._us_per_token.get(tier, 0.0) * count

    def paid(self, tier: str, count: int, us: float) -> None:
        """See `Prices`."""
        latest = us / count
        before = self._us_per_token.get(tier, latest)
        self._us_per_token[tier] = before + _WEIGHT * (latest - before)
