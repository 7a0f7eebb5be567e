"""Underglass's engine: LLM serving in plain sight.

    from engine import Engine, EngineConfig, SamplingParams, EventLog

Names are handed on lazily, so that `import engine.events` stays light: it must not pull in torch,
and a reader of logs needs neither scheduler nor model.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.config import ConfigError, EngineConfig
    from engine.engine import Completion, Engine
    from engine.events.log import EventLog, LogError
    from engine.scheduling.admission import RequestError
    from engine.scheduling.policies import Policy
    from engine.scheduling.sampling_params import SamplingError, SamplingParams

_HOME = {
    "Completion": "engine.engine",
    "ConfigError": "engine.config",
    "Engine": "engine.engine",
    "EngineConfig": "engine.config",
    "EventLog": "engine.events.log",
    "LogError": "engine.events.log",
    "Policy": "engine.scheduling.policies",
    "RequestError": "engine.scheduling.admission",
    "SamplingError": "engine.scheduling.sampling_params",
    "SamplingParams": "engine.scheduling.sampling_params",
}

__all__ = [
    "Completion",
    "ConfigError",
    "Engine",
    "EngineConfig",
    "EventLog",
    "LogError",
    "Policy",
    "RequestError",
    "SamplingError",
    "SamplingParams",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
