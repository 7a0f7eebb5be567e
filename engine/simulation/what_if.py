"""What if the budget had been half as large? A log's inputs, replayed with a setting changed.

    other = what_if(log, token_budget=32)

Each request arrives before the same step and gives the same answer; only the decisions of the scheduler
and of the cache may differ. With nothing changed they do not: the log is reproduced. An aborted request
is aborted again; where it now gets further than its logged tokens, the rest is filler, shown as a dot.

The times are those of a cost model, whose error must not be taken for an effect. `compare(log, other)`
times both runs by the same model and states its error.
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

    changes  fields of EngineConfig, or parts of the engine: `pool=`, `tree=`, `drafter=`, and as
             `policy=` and `eviction=` a name or an object. What a learner wrote for the logged run has
             to be passed in again, because a log has its name only.
    pinned   "step": requests arrive before the same step; "time": at the same time, and then even with
             nothing changed a step may start before or after an arrival that it had to wait for
    cost     what a step costs; None: what fits the logged run best. With a cost of your own, compare
             with `what_if(log, cost=cost)`, or the machine is part of the difference.

    Raises ConfigError, which says what is wrong, for a setting that does not exist or has no such
    value, for a missing part, and when a request of the log would be refused; ValueError for a log
    whose beginning was dropped.
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
            f"with these settings a request of the log is refused: {error}"
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
    """What the model takes for each `step_finished` of the log, which was measured there."""
    times = list[int]()
    work: Work | None = None
    for event in log:
        if isinstance(event, StepScheduled):
            work = Work.of(event.rows)
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
    """Raise ConfigError when the logged run had a part that nobody can make from its name."""
    built_in = dict(BUILT_IN)
    if config.policy in POLICIES:  # else the engine refuses the name
        built_in["policy"] = POLICIES[config.policy].__name__
    if config.eviction in EVICTIONS:
        built_in["eviction"] = EVICTIONS[config.eviction].__name__
    for name in DECIDING_PARTS:
        ran = started.classes.get(name)
        known = name not in started.classes or ran == built_in.get(name)
        if known or name in parts or name in changes:
            continue
        raise ConfigError(f"the logged run used the {name} {ran}: pass {name}={ran}(...) in again")
