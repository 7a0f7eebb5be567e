"""Compare two cluster runs of one workload, for example with two routers. Needs no widgets.

    comparison = compare(simulate_cluster(w, cost=c, router="random"), simulate_cluster(w, cost=c))
    comparison.totals       # hit rate, TTFT, right predictions, lost and retried requests
    comparison.requests     # one row per request, beginning with the largest change in TTFT

Requests are paired by their numbers, so both runs must have the same workload.
"""

import math
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

from engine.cluster.cluster_log import ClusterLog
from engine.cluster.events import Moved, Routed
from visualizer import read
from visualizer.comparing.clusters_tour import tour_of_clusters
from visualizer.comparing.compared import Compared
from visualizer.logs import LogLike, read_any
from visualizer.reading.frames import import_pandas
from visualizer.reading.messages import count
from visualizer.reading.rows.decisions import DecisionRow
from visualizer.reading.tour import Tour

if TYPE_CHECKING:
    import pandas as pd

# The columns of `decisions` to compare.
MEASURES = ("replica", "reason", "predicted_tokens", "cached_tokens", "ttft_ms", "lost")


class ComparedClusters(Compared):
    """Two cluster logs: their totals, and the requests that changed most."""

    logs: list[ClusterLog]

    def __init__(
        self, a: LogLike | ClusterLog, b: LogLike | ClusterLog, names: tuple[str, str] = ("A", "B")
    ) -> None:
        self.logs = [_read(log, name) for log, name in zip((a, b), "ab", strict=True)]
        self.names = list(names)

    @property
    def requests(self) -> "pd.DataFrame":
        """One row per request in both runs: its last decision in each, and `ttft_change_ms`.

        A request whose first token comes earlier in the second run has a negative change.
        """
        one, two = (
            read(log).decisions.groupby("request").last()[list(MEASURES)].add_suffix(f"_{name}")
            for log, name in zip(self.logs, self.names, strict=True)
        )
        table = one.join(two, how="inner")
        first, second = (table[f"ttft_ms_{name}"] for name in self.names)
        table["ttft_change_ms"] = second - first
        return table.sort_values(
            "ttft_change_ms", key=lambda change: change.abs(), ascending=False, kind="stable"
        )

    @property
    def totals(self) -> "pd.DataFrame":
        """A column of figures for each run: hit rate, TTFT, predictions, losses."""
        pd = import_pandas("ClusterComparison.totals")
        return pd.DataFrame({name: _totals(self, run) for run, name in enumerate(self.names)})

    @cached_property
    def tour(self) -> Tour:
        """What differs, told in scenes; see `visualizer/reading/tour`."""
        return tour_of_clusters(self)

    def routed(self, run: int) -> list[Routed]:
        """Return the router's decisions of a run."""
        return [event for event in self.logs[run] if isinstance(event, Routed)]

    def rows(self, run: int) -> list[DecisionRow]:
        """Return the decisions of a run, as rows."""
        return read(self.logs[run]).decision_rows

    def last_rows(self, run: int) -> dict[int, DecisionRow]:
        """Return the decision for the replica that answers a request, by request."""
        return {row.request: row for row in self.rows(run)}

    def first_tokens(self, run: int) -> list[float]:
        """Return the time to the first token of each request of a run that got one, in ms."""
        found: dict[int, float] = {}
        for row in self.rows(run):
            if row.ttft_ms is not None:
                found[row.request] = min(row.ttft_ms, found.get(row.request, math.inf))
        return list(found.values())

    def page_options(self) -> dict[str, Any]:
        """Return the names and the tour: the page computes the rest."""
        return {"names": self.names, **self.tour.as_dict()}

    def __repr__(self) -> str:
        one, two = (
            {row.request: row.replica for row in read(log).decision_rows} for log in self.logs
        )
        paired = one.keys() & two.keys()
        moved = sum(one[request] != two[request] for request in paired)
        return f"{type(self).__name__}({count(len(paired), 'request')}, {moved} on another replica)"


def _read(log: LogLike | ClusterLog, name: str) -> ClusterLog:
    cluster = read_any(log)
    if not isinstance(cluster, ClusterLog):
        kind = type(cluster).__name__
        raise TypeError(
            f"{name} must be a cluster log like the log it is compared with, got {kind}"
        )
    return cluster


def _totals(of: ComparedClusters, run: int) -> dict[str, float]:
    rows = of.rows(run)
    judged = [row for row in rows if row.prompt_tokens and row.cached_tokens is not None]
    ttft = of.first_tokens(run) or [math.nan]
    right = [row.cached_tokens == hit for row, hit in _predictions(of.logs[run])]
    return {
        "requests": len({row.request for row in rows}),
        "hit_rate": sum(row.cached_tokens or 0 for row in judged)
        / max(1, sum(row.prompt_tokens + row.output_tokens for row in judged)),
        "right_predictions": sum(right) / len(right) if right else math.nan,
        "ttft_mean_ms": fmean(ttft),
        "ttft_max_ms": max(ttft),
        "lost": len({row.request for row in rows if row.lost}),
        "retried": len({row.request for row in rows if row.attempt > 1}),
    }


def _predictions(log: ClusterLog) -> list[tuple[DecisionRow, int]]:
    """Return the decisions with a prediction and a known hit, each with the expected hit in tokens.

    Blocks that were moved to the replica count as expected.
    """
    routed = [event for event in log if isinstance(event, Routed)]
    moved = {
        (event.request, event.target): event.tokens for event in log if isinstance(event, Moved)
    }
    return [
        (row, max(row.predicted_tokens, moved.get((row.request, row.replica), 0)))
        for row, event in zip(read(log).decision_rows, routed, strict=True)
        if event.hits and row.prompt_tokens and row.cached_tokens is not None
    ]
