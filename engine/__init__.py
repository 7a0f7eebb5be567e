"""Underglass's engine: LLM serving in plain sight.

    from engine import Engine, EngineConfig, SamplingParams, EventLog

Names are imported lazily, so `import engine.core.log` stays fast: code that only reads logs needs
neither the scheduler nor a model.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.cluster.cluster_log import ClusterLog
    from engine.cluster.router import Decision, Replica, Router
    from engine.cluster.simulate_cluster import simulate_cluster
    from engine.core.config import ConfigError, EngineConfig
    from engine.core.engine import Engine
    from engine.core.log.log import EventLog, LogError
    from engine.core.offline import Completion
    from engine.core.sampling_params import SamplingError, SamplingParams
    from engine.core.scheduling.admission import RequestError
    from engine.core.scheduling.policy import Policy
    from engine.simulation.cost_runner import Cost, CostRunner
    from engine.simulation.simulate import simulate
    from engine.simulation.study import study
    from engine.simulation.what_if import what_if
    from engine.simulation.workload import Workload

_HOME = {
    "ClusterLog": "engine.cluster.cluster_log",
    "Completion": "engine.core.offline",
    "ConfigError": "engine.core.config",
    "Cost": "engine.simulation.cost_runner",
    "CostRunner": "engine.simulation.cost_runner",
    "Decision": "engine.cluster.router",
    "Engine": "engine.core.engine",
    "EngineConfig": "engine.core.config",
    "EventLog": "engine.core.log.log",
    "LogError": "engine.core.log.log",
    "Policy": "engine.core.scheduling.policy",
    "Replica": "engine.cluster.router",
    "RequestError": "engine.core.scheduling.admission",
    "Router": "engine.cluster.router",
    "SamplingError": "engine.core.sampling_params",
    "SamplingParams": "engine.core.sampling_params",
    "Workload": "engine.simulation.workload",
    "simulate": "engine.simulation.simulate",
    "simulate_cluster": "engine.cluster.simulate_cluster",
    "study": "engine.simulation.study",
    "what_if": "engine.simulation.what_if",
}

__all__ = [
    "ClusterLog",
    "Completion",
    "ConfigError",
    "Cost",
    "CostRunner",
    "Decision",
    "Engine",
    "EngineConfig",
    "EventLog",
    "LogError",
    "Policy",
    "Replica",
    "RequestError",
    "Router",
    "SamplingError",
    "SamplingParams",
    "Workload",
    "simulate",
    "simulate_cluster",
    "study",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
