"""The figures of one arrival rate, computed from its rows alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from engine.simulation.capacity.served import Served
from engine.simulation.capacity.slo import NO_GOALS, Slo
from engine.simulation.quantile import quantile

SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Point:
    """One rate and its requests. Percentiles are of complete answers; `failed` counts the others."""

    rate: float
    rows: Sequence[Served]
    slo: Slo = NO_GOALS

    @cached_property
    def complete(self) -> list[Served]:
        """The requests that were answered to the end."""
        return [row for row in self.rows if row.is_complete]

    @property
    def failed(self) -> int:
        """The number of requests without a complete answer."""
        return len(self.rows) - len(self.complete)

    @cached_property
    def seconds(self) -> float:
        """From the first scheduled arrival to the last token, and at least as long as the arrivals."""
        begin = min(row.scheduled for row in self.rows)
        ends = [row.last for row in self.complete if row.last is not None]
        return max(max(ends, default=begin) - begin, 1000 * len(self.rows) / self.rate) / 1000

    @property
    def requests_per_s(self) -> float:
        """Complete answers per second."""
        return len(self.complete) / self.seconds

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of complete answers per second."""
        return sum(row.output_tokens for row in self.complete) / self.seconds

    def latencies(self, name: str) -> list[float]:
        """Return a latency of all complete answers in ms; for "itl" each gap between two tokens."""
        if name == "itl":
            return [gap for row in self.complete for gap in row.gaps]
        return [row.latency(name) for row in self.complete]

    def percentile(self, name: str, share: float) -> float | None:
        """Return a percentile of a latency in ms; None without a complete answer."""
        key = name, share
        if key not in self._percentiles:
            values = self.latencies(name)
            self._percentiles[key] = quantile(values, share) if values else None
        return self._percentiles[key]

    @cached_property
    def _percentiles(self) -> dict[tuple[str, float], float | None]:
        return {}

    @cached_property
    def mean_e2e_ms(self) -> float | None:
        """The mean time that a request is in the system, as in Little's law."""
        return fmean(self.latencies("e2e")) if self.complete else None

    @property
    def in_system(self) -> float:
        """The mean number of requests in the system, by Little's law: rate times mean time."""
        return self.requests_per_s * (self.mean_e2e_ms or 0.0) / 1000

    @cached_property
    def attained(self) -> float:
        """The share of all requests, failed ones included, that meet the SLO."""
        good = sum(
            row.is_complete
            and all(row.latency(name) <= limit for name, limit in self.slo.limits.items())
            for row in self.rows
        )
        return good / len(self.rows)

    @property
    def goodput(self) -> float:
        """Requests per second that meet the SLO."""
        return self.attained * len(self.rows) / self.seconds

    @property
    def meets(self) -> bool:
        """Whether enough of the requests meet the SLO."""
        return self.attained >= self.slo.share

    @cached_property
    def late_ms(self) -> float:
        """The 99th percentile of how late the client sent; 0 in the simulator."""
        return quantile([row.late_ms for row in self.rows], 0.99)
