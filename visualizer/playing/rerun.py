"""A run with other settings: the one place where the visualizer starts an engine.

Everything else in this room reads logs, and logs alone. A playground has to make them, so the import
contract in `pyproject.toml` names this module, and no other, as its exception.
"""

import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from engine.config import ConfigError, EngineConfig
from engine.events import EventLog
from engine.scheduling.admission import RequestError
from engine.scheduling.policies import POLICIES
from engine.simulation.cost_runner import Cost
from engine.simulation.on_model import play_on_model
from engine.simulation.simulate import simulate
from engine.simulation.traffic import Traffic, TrafficError
from engine.simulation.workload import Arrival, Workload

__all__ = ["POLICY_NAMES", "Cost", "EngineConfig", "Setup", "SetupError", "Traffic", "Workload"]

POLICY_NAMES = tuple(POLICIES)
# Tokens that one run may have, prompts and answers: about a second on a pretend machine, and a few on
# the bundled model.
SIMULATED_TOKENS = 60_000
MODEL_TOKENS = 6_000


class SetupError(ValueError):
    """These settings cannot be run. The message says why, for whoever has just moved a control."""


@dataclass(frozen=True)
class Served:
    """A run: its log, how many seconds it took to make, and how many requests were left out of it."""

    log: EventLog
    seconds: float
    left_out: int


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that a run depends on.

    workload   what was asked for in place of the traffic
    cost       what a step costs on the pretend machine
    model      run on the bundled model
    """

    config: EngineConfig = field(
        default_factory=lambda: EngineConfig(
            token_budget=48, max_batch_size=6, max_kv_tokens=224, block_size=8
        )
    )
    traffic: Traffic = field(default_factory=Traffic)
    workload: Workload | None = None
    cost: Cost = field(default_factory=lambda: Cost(10, 0.25))
    model: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """What can be changed, by name."""
        config: dict[str, Any] = msgspec.to_builtins(self.config)
        traffic = {} if self.workload is not None else asdict(self.traffic)
        return config | traffic | {"model": self.model}

    def changed(self, **changes: Any) -> "Setup":
        """The same with other settings. Raises SetupError for one that does not exist or cannot be."""
        unknown = sorted(changes.keys() - self.settings.keys())
        if unknown:
            names = ", ".join(self.settings)
            raise SetupError(f"{unknown[0]} is not a setting here; there are {names}")
        of_config = EngineConfig.__struct_fields__
        config = {name: value for name, value in changes.items() if name in of_config}
        traffic = {
            name: value
            for name, value in changes.items()
            if name not in of_config and name != "model"
        }
        try:
            return replace(
                self,
                config=EngineConfig(**msgspec.to_builtins(self.config) | config),
                traffic=replace(self.traffic, **traffic),
                model=changes.get("model", self.model),
            )
        except (ConfigError, TrafficError) as error:
            raise SetupError(str(error)) from error

    def serve(self) -> Served:
        """Run it. Raises SetupError, which says who can never be served, where somebody cannot."""
        workload, left_out = _limited(
            self.workload or self.traffic.workload,
            MODEL_TOKENS if self.model else SIMULATED_TOKENS,
        )
        started = time.perf_counter()
        try:
            if self.model:
                log = play_on_model(workload, self.config)
            else:
                log = simulate(workload, self.config, cost=self.cost)
        except RequestError as error:
            raise SetupError(f"Somebody could never be served. {error}.") from error
        except (ConfigError, ValueError) as error:
            raise SetupError(str(error)) from error
        return Served(log, time.perf_counter() - started, left_out)


def _limited(workload: Workload, most: int) -> tuple[Workload, int]:
    """As many of a workload's inputs as have at most so many tokens, and how many are left out."""
    tokens = 0
    for index, one in enumerate(workload.inputs):
        if isinstance(one, Arrival):
            tokens += len(one.prompt) + one.params.max_tokens * one.params.samples
        if tokens > most:
            return replace(workload, inputs=workload.inputs[:index]), len(workload.inputs) - index
    return workload, 0
