"""Underglass's engine: LLM serving in plain sight.

    from engine import Engine, EngineConfig, SamplingParams, EventLog

Names are imported lazily, so `import engine.events` stays fast: code that only reads logs needs
neither the scheduler nor a model.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.config import ConfigError, EngineConfig
    from engine.engine import Engine
    from engine.events.cluster_log import ClusterLog
    from engine.events.log import EventLog, LogError
    from engine.offline import Completion
    from engine.routing.router import Decision, Replica, Router
    from engine.scheduling.admission import RequestError
    from engine.scheduling.policy import Policy
    from engine.scheduling.sampling_params import SamplingError, SamplingParams
    from engine.simulation.cluster import simulate_cluster
    from engine.simulation.cost_runner import Cost, CostRunner
    from engine.simulation.simulate import simulate
    from engine.simulation.study import study
    from engine.simulation.what_if import what_if
    from engine.simulation.workload import Workload

_HOME = {
    "ClusterLog": "engine.events.cluster_log",
    "Completion": "engine.offline",
    "ConfigError": "engine.config",
    "Cost": "engine.simulation.cost_runner",
    "CostRunner": "engine.simulation.cost_runner",
    "Decision": "engine.routing.router",
    "Engine": "engine.engine",
    "EngineConfig": "engine.config",
    "EventLog": "engine.events.log",
    "LogError": "engine.events.log",
    "Policy": "engine.scheduling.policy",
    "Replica": "engine.routing.router",
    "RequestError": "engine.scheduling.admission",
    "Router": "engine.routing.router",
    "SamplingError": "engine.scheduling.sampling_params",
    "SamplingParams": "engine.scheduling.sampling_params",
    "Workload": "engine.simulation.workload",
    "simulate": "engine.simulation.simulate",
    "simulate_cluster": "engine.simulation.cluster",
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
