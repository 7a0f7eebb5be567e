"""What if the budget had been half as large? A log's inputs, replayed with a setting changed.

    other = what_if(log, token_budget=32)

Everybody asks the same in the same step and says what they said then; only the scheduler's and the
cache's decisions may differ. With nothing changed they do not: the log is reproduced. A request that
was aborted is aborted again; what it says beyond its logged tokens, where it now gets further, is
filler, shown as a dot.
"""

from typing import Any

from engine.cache.eviction import EVICTIONS
from engine.config import ConfigError, EngineConfig
from engine.events.log import EventLog
from engine.events.vocabulary import RunStarted
from engine.scheduling.admission import RequestError
from engine.scheduling.policies import POLICIES
from engine.simulation.cost_runner import Cost
from engine.simulation.fit import fit
from engine.simulation.simulate import simulate
from engine.simulation.workload import Workload

PARTS = ("policy", "pool", "tree", "eviction", "drafter")
BUILT_IN = {"pool": "BlockPool", "tree": "RadixTree"}


def what_if(
    log: EventLog, *, pinned: str = "step", cost: Cost | None = None, **changes: Any
) -> EventLog:
    """Replay a log's inputs with other settings, and return the log of that run.

    changes  fields of EngineConfig, or parts of the engine: `pool=`, `tree=`, `drafter=`, and as
             `policy=` and `eviction=` a name or an object. What a learner wrote for the logged run has
             to be passed in again, because a log has its name only.
    pinned   "step": everybody arrives before the same step; "time": at the same time
    cost     what a step costs; None: what fits the logged run best

    Raises ConfigError, which says what is wrong, for a setting that does not exist or has no such
    value, for a missing part, and when a request of the log would be refused; ValueError for a log
    whose beginning was dropped.
    """
    workload = Workload.from_log(log, pinned)
    started = log[0]
    assert isinstance(started, RunStarted)
    parts = {
        name: changes.pop(name) for name in PARTS if not isinstance(changes.get(name, ""), str)
    }
    config = _changed(started.settings, changes)
    _check_parts(started, config, parts, changes)
    try:
        return simulate(workload, config, cost=cost or fit(log).cost, **parts)
    except RequestError as error:
        raise ConfigError(
            f"with these settings a request of the log is refused: {error}"
        ) from error


def _changed(settings: dict[str, Any], changes: dict[str, Any]) -> EngineConfig:
    fields = EngineConfig.__struct_fields__
    for name in changes:
        if name not in fields:
            raise ConfigError(
                f"{name} is not a setting; there are {', '.join(fields)}, and the parts "
                f"{', '.join(PARTS)}"
            )
    return EngineConfig(**{name: settings[name] for name in fields if name in settings} | changes)


def _check_parts(
    started: RunStarted, config: EngineConfig, parts: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Raise ConfigError when the logged run had a part that nobody can make from its name."""
    built_in = dict(BUILT_IN)
    if config.policy in POLICIES:  # else the engine refuses the name
        built_in["policy"] = POLICIES[config.policy].__name__
    if config.eviction in EVICTIONS:
        built_in["eviction"] = EVICTIONS[config.eviction].__name__
    for name in PARTS:
        ran = started.classes.get(name)
        known = name not in started.classes or ran == built_in.get(name)
        if known or name in parts or name in changes:
            continue
        raise ConfigError(f"the logged run used the {name} {ran}: pass {name}={ran}(...) in again")
