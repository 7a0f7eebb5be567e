"""Underglass's engine: LLM serving in plain sight.

    from engine import Engine, EngineConfig, SamplingParams, EventLog

Names are imported lazily, so `import engine.core.log` stays fast: code that only reads logs needs
neither the scheduler nor a model.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.cluster.cluster_log import ClusterLog as ClusterLog
    from engine.cluster.router import Decision as Decision
    from engine.cluster.router import Replica as Replica
    from engine.cluster.router import Router as Router
    from engine.cluster.simulate_cluster import simulate_cluster as simulate_cluster
    from engine.core.config import ConfigError as ConfigError
    from engine.core.config import EngineConfig as EngineConfig
    from engine.core.engine import Engine as Engine
    from engine.core.log.log import EventLog as EventLog
    from engine.core.log.log import LogError as LogError
    from engine.core.offline import Completion as Completion
    from engine.core.sampling_params import SamplingError as SamplingError
    from engine.core.sampling_params import SamplingParams as SamplingParams
    from engine.core.scheduling.admission import RequestError as RequestError
    from engine.core.scheduling.policy import Policy as Policy
    from engine.simulation.capacity.curve import Sweep as Sweep
    from engine.simulation.capacity.load import Load as Load
    from engine.simulation.capacity.simulated import simulated as simulated
    from engine.simulation.capacity.sweep import sweep as sweep
    from engine.simulation.cost_runner import Cost as Cost
    from engine.simulation.cost_runner import CostRunner as CostRunner
    from engine.simulation.simulate import simulate as simulate
    from engine.simulation.study import study as study
    from engine.simulation.what_if import what_if as what_if
    from engine.simulation.workload import Workload as Workload

_NAMES = {
    "engine.cluster.cluster_log": "ClusterLog",
    "engine.cluster.router": "Decision Replica Router",
    "engine.cluster.simulate_cluster": "simulate_cluster",
    "engine.core.config": "ConfigError EngineConfig",
    "engine.core.engine": "Engine",
    "engine.core.log.log": "EventLog LogError",
    "engine.core.offline": "Completion",
    "engine.core.sampling_params": "SamplingError SamplingParams",
    "engine.core.scheduling.admission": "RequestError",
    "engine.core.scheduling.policy": "Policy",
    "engine.simulation.capacity.curve": "Sweep",
    "engine.simulation.capacity.load": "Load",
    "engine.simulation.capacity.simulated": "simulated",
    "engine.simulation.capacity.sweep": "sweep",
    "engine.simulation.cost_runner": "Cost CostRunner",
    "engine.simulation.simulate": "simulate",
    "engine.simulation.study": "study",
    "engine.simulation.what_if": "what_if",
    "engine.simulation.workload": "Workload",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
