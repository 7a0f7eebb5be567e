"""What limited a run, and from when to when: see `regimes.py`."""

from visualizer.reading.regimes.cluster import ClusterRegimes, regimes_of_cluster
from visualizer.reading.regimes.regimes import Regime, Regimes, regimes_of

__all__ = ["ClusterRegimes", "Regime", "Regimes", "regimes_of", "regimes_of_cluster"]
