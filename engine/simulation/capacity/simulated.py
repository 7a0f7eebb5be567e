"""The simulator as the target of a sweep: a virtual clock, so that a minute of load takes a second."""

from collections.abc import Callable
from typing import Any

from engine.core.config import EngineConfig
from engine.simulation.capacity.served import Served, served_in
from engine.simulation.cost_runner import Cost
from engine.simulation.simulate import simulate
from engine.simulation.workload import Workload

# Serves a workload at a rate, and returns a row for each request.
Serve = Callable[[Workload, float], list[Served]]

COST = Cost(10.0, 0.25)  # the machine of the lessons


def simulated(config: EngineConfig | None = None, *, cost: Cost = COST, **parts: Any) -> Serve:
    """Return a target for `sweep` that serves on a simulated machine; see `simulate`."""
    return lambda workload, rate: served_in(simulate(workload, config, cost=cost, **parts), rate)
