"""What limited a cluster: the regimes of each replica, and where requests waited longest."""

from dataclasses import dataclass
from typing import Any

from engine.cluster.cluster_log import ClusterLog
from visualizer.reading.regimes.regimes import Regimes, regimes_of
from visualizer.reading.regimes.words import count_of, lowered, share_of_all


@dataclass(frozen=True)
class ClusterRegimes:
    """The regimes of each replica, by its id. Steps and seats are a replica's own."""

    replicas: dict[str, Regimes]

    @property
    def worst(self) -> str | None:
        """The replica at which requests waited longest; None if none waited."""
        waits = {name: sum(one.waited.values()) for name, one in self.replicas.items()}
        worst = max(waits, key=lambda name: waits[name], default=None)
        return worst if worst is not None and waits[worst] else None

    @property
    def sentence(self) -> str:
        """Where most of the waiting is, and what limited that replica."""
        number = count_of(len(self.replicas), "replica")
        if self.worst is None:
            return f"No request waits at any of {number}."
        worst = self.replicas[self.worst]
        whole = sum(sum(one.waited.values()) for one in self.replicas.values())
        share = share_of_all(sum(worst.waited.values()), whole)
        return f"Of {number}, replica {self.worst} has {share} waiting; {lowered(worst.sentence)}"

    def __str__(self) -> str:
        parts = [f"{name}: {one}" for name, one in self.replicas.items()]
        return "\n\n".join([self.sentence, *parts])

    def as_dict(self) -> dict[str, Any]:
        """Return what a page shows, as plain values."""
        replicas = {name: one.as_dict() for name, one in self.replicas.items()}
        return {"sentence": self.sentence, "replicas": replicas}


def regimes_of_cluster(log: ClusterLog) -> ClusterRegimes:
    """Return the regimes of each replica of a cluster's log."""
    return ClusterRegimes({name: regimes_of(one) for name, one in log.replicas.items()})
