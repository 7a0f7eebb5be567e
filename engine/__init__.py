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
    from engine.events.log import EventLog, LogError
    from engine.offline import Completion
    from engine.scheduling.admission import RequestError
    from engine.scheduling.policy import Policy
    from engine.scheduling.sampling_params import SamplingError, SamplingParams
    from engine.simulation.cost_runner import Cost, CostRunner
    from engine.simulation.simulate import simulate
    from engine.simulation.what_if import what_if
    from engine.simulation.workload import Workload

_HOME = {
    "Completion": "engine.offline",
    "ConfigError": "engine.config",
    "Cost": "engine.simulation.cost_runner",
    "CostRunner": "engine.simulation.cost_runner",
    "Engine": "engine.engine",
    "EngineConfig": "engine.config",
    "EventLog": "engine.events.log",
    "LogError": "engine.events.log",
    "Policy": "engine.scheduling.policy",
    "RequestError": "engine.scheduling.admission",
    "SamplingError": "engine.scheduling.sampling_params",
    "SamplingParams": "engine.scheduling.sampling_params",
    "Workload": "engine.simulation.workload",
    "simulate": "engine.simulation.simulate",
    "what_if": "engine.simulation.what_if",
}

__all__ = [
    "Completion",
    "ConfigError",
    "Cost",
    "CostRunner",
    "Engine",
    "EngineConfig",
    "EventLog",
    "LogError",
    "Policy",
    "RequestError",
    "SamplingError",
    "SamplingParams",
    "Workload",
    "simulate",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
