"""What if the budget had been half as large? A log's inputs, replayed with a setting changed.

    other = what_if(log, token_budget=32)

Each request arrives before the same step and has the same answer; only decisions of the scheduler and
the cache may differ. Without a change, the replay reproduces the log. An aborted request is
aborted again; if it now gets more tokens than are logged, the rest is filler, shown as dots.

The times come from a cost model, whose error must not be mistaken for an effect of the change.
`compare(log, other)` times both runs with the same model and reports its error.
"""

from typing import Any

from engine.cache.eviction import EVICTIONS
from engine.config import ConfigError, EngineConfig
from engine.events.log import EventLog
from engine.events.vocabulary import DECIDING_PARTS, RunStarted, StepFinished, StepScheduled
from engine.scheduling.admission import RequestError
from engine.scheduling.policies import POLICIES
from engine.simulation.cost_runner import US_PER_MS, Cost, Work
from engine.simulation.fit import fit
from engine.simulation.simulate import simulate
from engine.simulation.workload import Workload

BUILT_IN = {"pool": "BlockPool", "tree": "RadixTree"}


def what_if(
    log: EventLog, *, pinned: str = "step", cost: Cost | None = None, **changes: Any
) -> EventLog:
    """Replay a log's inputs with other settings, and return the log of that run.

    changes  fields of EngineConfig, or parts of the engine: `pool=`, `tree=`, `drafter=`; `policy=`
             and `eviction=` take a name or an object. A learner's own part has to be passed in again,
             because the log records only its name.
    pinned   "step": requests arrive before the same step; "time": at the same time. With "time", an
             arrival may land in another step even without a change
    cost     the cost of a step; None: the best fit to the logged run. With a cost of your own, compare
             with `what_if(log, cost=cost)`; otherwise the machine is part of the difference.

    Raises ConfigError for an unknown setting or value, for a missing part, and if a request of the log
    would be rejected; ValueError for a log whose beginning was dropped.
    """
    workload = Workload.from_log(log, pinned)
    started = log[0]
    assert isinstance(started, RunStarted)
    parts = {
        name: changes.pop(name)
        for name in DECIDING_PARTS
        if not isinstance(changes.get(name, ""), str)
    }
    config = _changed(started.settings, changes)
    _check_parts(started, config, parts, changes)
    model = cost or fit(log).cost
    try:
        replay = simulate(workload, config, cost=model, **parts)
    except RequestError as error:
        raise ConfigError(
            f"with these settings a request of the log is rejected: {error}"
        ) from error
    if cost is None:
        header = replay[0]
        assert isinstance(header, RunStarted)
        header.t["fitted"] = {
            "unix_us": started.t.get("unix_us"),
            "pinned": pinned,
            "step_us": _step_us(log, model),
        }
    return replay


def _step_us(log: EventLog, model: Cost) -> list[int]:
    """Return the model's duration of each `step_finished` of the log."""
    times = list[int]()
    work: Work | None = None
    for event in log:
        if isinstance(event, StepScheduled):
            work = Work.of(event.rows) if event.rows else None
        elif isinstance(event, StepFinished):
            times.append(round(model.of(work) * US_PER_MS) if work else 0)
            work = None
    return times


def _changed(settings: dict[str, Any], changes: dict[str, Any]) -> EngineConfig:
    fields = EngineConfig.__struct_fields__
    for name in changes:
        if name not in fields:
            raise ConfigError(
                f"{name} is not a setting; there are {', '.join(fields)}, and the parts "
                f"{', '.join(DECIDING_PARTS)}"
            )
    return EngineConfig(**{name: settings[name] for name in fields if name in settings} | changes)


def _check_parts(
    started: RunStarted, config: EngineConfig, parts: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Raise ConfigError if the logged run had a part that cannot be made from its name."""
    built_in = dict(BUILT_IN)
    if config.policy in POLICIES:  # else the engine rejects the name
        built_in["policy"] = POLICIES[config.policy].__name__
    if config.eviction in EVICTIONS:
        built_in["eviction"] = EVICTIONS[config.eviction].__name__
    for name in DECIDING_PARTS:
        ran = started.classes.get(name)
        known = name not in started.classes or ran == built_in.get(name)
        if known or name in parts or name in changes:
            continue
        raise ConfigError(f"the logged run used the {name} {ran}: pass {name}={ran}(...) in again")
