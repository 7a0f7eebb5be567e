"""What limited a cluster: the regimes of each replica, and where requests waited longest."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from engine.cluster.cluster_log import ClusterLog, Part
from visualizer.reading.regimes.regimes import Regimes, regimes_of
from visualizer.reading.regimes.words import count_of, lowered, share_of_all


@dataclass(frozen=True)
class ClusterRegimes:
    """The regimes of each part of the log. Steps and seats are those of a run of one replica."""

    parts: list[tuple[Part, Regimes]]

    @property
    def waits(self) -> dict[str, int]:
        """How long requests waited at each replica, over all its runs."""
        waits = Counter[str]()
        for part, regimes in self.parts:
            waits[part.run.replica] += sum(regimes.waited.values())
        return dict(waits)

    @property
    def worst(self) -> str | None:
        """The replica at which requests waited longest; None if none waited."""
        worst = max(self.waits, key=self.waits.__getitem__, default=None)
        return worst if worst is not None and self.waits[worst] else None

    @property
    def sentence(self) -> str:
        """Where most of the waiting is, and what limited that replica."""
        waits, worst = self.waits, self.worst
        number = count_of(len(waits), "replica")
        if worst is None:
            return f"No request waits at any of {number}."
        share = share_of_all(waits[worst], sum(waits.values()))
        its = [one for one in self.parts if one[0].run.replica == worst]
        part, regimes = max(its, key=lambda one: sum(one[1].waited.values()))
        most = f", most of it in {part.name.partition(', ')[2]}" if len(its) > 1 else ""
        return (
            f"Of {number}, replica {worst} has {share} waiting{most}; {lowered(regimes.sentence)}"
        )

    def __str__(self) -> str:
        parts = [f"{part.name}: {one}" for part, one in self.parts]
        return "\n\n".join([self.sentence, *parts])

    def as_dict(self) -> dict[str, Any]:
        """Return what a page shows, as plain values."""
        replicas = {part.name: one.as_dict() for part, one in self.parts}
        return {"sentence": self.sentence, "replicas": replicas}


def regimes_of_cluster(log: ClusterLog) -> ClusterRegimes:
    """Return the regimes of each replica of a cluster's log, in all its runs."""
    return ClusterRegimes([(part, regimes_of(part.log)) for part in log.parts])
