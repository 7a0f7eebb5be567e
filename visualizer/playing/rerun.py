"""Run a workload with changed settings.

Most of the package only reads logs, but the playground has to produce them. So the import contract in
`pyproject.toml` lists this module as an exception; the other one is `sources/mooncake_run.py`.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from engine.core.config import ConfigError, EngineConfig
from engine.core.log import EventLog
from engine.core.scheduling.admission import RequestError
from engine.simulation.cost_runner import Cost
from engine.simulation.on_model import play_on_model
from engine.simulation.simulate import simulate
from engine.simulation.speakers import Speaker, workload_of
from engine.simulation.traffic import Traffic, TrafficError
from engine.simulation.workload import Arrival, Workload

__all__ = ["Cost", "EngineConfig", "Setup", "SetupError", "Traffic", "Workload"]

# Limits on the prompt and output tokens of a run, so that it takes about one second on the simulated
# machine and a few seconds on the bundled model.
SIMULATED_TOKENS = 60_000
MODEL_TOKENS = 6_000


class SetupError(ValueError):
    """The engine cannot run with these settings. The message tells the user why."""


@dataclass(frozen=True)
class Run:
    """The log of a run, and how many requests were left out."""

    log: EventLog
    left_out: int


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Everything that a run depends on.

    workload   requests to serve instead of generated traffic
    cost       the time of a step on the simulated machine
    model      whether to run on the bundled model instead of the simulated machine
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
        """The settings that can be changed, as {name: value}."""
        config: dict[str, Any] = msgspec.to_builtins(self.config)
        traffic = {} if self.workload is not None else msgspec.structs.asdict(self.traffic)
        return config | traffic | {"model": self.model}

    def changed(self, **changes: Any) -> "Setup":
        """Return a copy with changes. Raises SetupError for an unknown name or an invalid value."""
        unknown = sorted(changes.keys() - self.settings.keys())
        if unknown:
            names = ", ".join(self.settings)
            raise SetupError(f"{unknown[0]} is not a setting; the settings are {names}")
        config, traffic = (
            {name: changes[name] for name in kind.__struct_fields__ if name in changes}
            for kind in (EngineConfig, Traffic)
        )
        try:
            return replace(
                self,
                config=self.config.changed(**config),
                traffic=msgspec.structs.replace(self.traffic, **traffic),
                model=changes.get("model", self.model),
            )
        except (ConfigError, TrafficError) as error:
            raise SetupError(str(error)) from error

    def run(self) -> Run:
        """Run the workload. Raises SetupError if a request can never be served."""
        workload, left_out = _truncated(
            self.workload or self.traffic.workload,
            MODEL_TOKENS if self.model else SIMULATED_TOKENS,
        )
        try:
            if self.model:
                log = play_on_model(workload, self.config)
            else:
                log = simulate(workload, self.config, cost=self.cost)
        except RequestError as error:
            raise SetupError(f"The engine can never serve one of the requests: {error}.") from error
        except (ConfigError, ValueError) as error:
            raise SetupError(str(error)) from error
        return Run(log, left_out)


def seven_people() -> Workload:
    """Return the questions' workload: Dev and Finn bring long prompts, and Ada comes late."""
    return workload_of(
        Speaker(name, at_ms=at_ms, own=own, output=output, priority=priority)
        for name, at_ms, own, output, priority in (
            ("Bo", 0, 40, 44, 2),
            ("Cleo", 0, 32, 36, 2),
            ("Dev", 39, 420, 16, 2),
            ("Eva", 45, 24, 28, 2),
            ("Finn", 60, 300, 24, 0),
            ("Ada", 120, 24, 14, 1),
            ("Gus", 150, 36, 16, 2),
        )
    )


def _truncated(workload: Workload, most: int) -> tuple[Workload, int]:
    """Return the first inputs, up to `most` tokens in total, and the number of inputs left out."""
    tokens = 0
    for index, one in enumerate(workload.inputs):
        if isinstance(one, Arrival):
            tokens += len(one.prompt) + one.params.max_tokens * one.params.samples
        if tokens > most:
            return replace(workload, inputs=workload.inputs[:index]), len(workload.inputs) - index
    return workload, 0
