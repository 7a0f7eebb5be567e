"""What if the budget had been half as large? A log's inputs, replayed with a setting changed.

    other = what_if(log, token_budget=32)

Each request arrives before the same step and has the same answer; only decisions of the scheduler and
the cache may differ. Without a change, the replay reproduces the log. An aborted request is
aborted again; if it now gets more tokens than are logged, the rest is filler, shown as dots.

The times come from a cost model, whose error must not be mistaken for an effect of the change.
`compare(log, other)` times both runs with the same model and reports its error; `study` puts the
recorded run, its replay and the changed runs side by side.

A log of another engine is replayed with the settings that decide as that engine does. Where its
tokens are unknown, `replayable.py` invents some; the log of the replay has them as unknown again.
"""

from typing import Any

from engine.core.cache.eviction import EVICTIONS
from engine.core.config import ConfigError, EngineConfig
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import DECIDING_PARTS, KeyframeState, RunStarted
from engine.core.scheduling.admission import RequestError
from engine.core.scheduling.policies import POLICIES
from engine.simulation.cost_runner import US_PER_MS, Cost, Work
from engine.simulation.facts import Fact, Knowledge, simulated_facts
from engine.simulation.fit import FEWEST_STEPS, HeldBack, finished_steps, fit, held_back
from engine.simulation.log_part import started_of
from engine.simulation.recorded_drafts import with_length
from engine.simulation.replayable import replayable
from engine.simulation.simulate import simulate
from engine.simulation.unknown_tokens import with_unknown_tokens
from engine.simulation.workload import Workload

BUILT_IN = {"pool": "BlockPool", "tree": "RadixTree"}
# Of a run of another engine that is replayed here. What is not listed follows from these.
_KNOWN: dict[Fact, Knowledge] = {"arrivals": "recorded", "settings": "recorded"}


def what_if(
    log: EventLog,
    *,
    pinned: str = "step",
    cost: Cost | None = None,
    draft_length: int | None = None,
    **changes: Any,
) -> EventLog:
    """Replay a log's inputs with other settings, and return the log of that run.

    changes  fields of EngineConfig, or parts of the engine: `pool=`, `tree=`, `drafter=`; `policy=`
             and `eviction=` take a name or an object. A learner's own part has to be passed in again,
             because the log records only its name. Drafts are those of the log, if no drafter is given
    pinned   "step": requests arrive before the same step; "time": at the same time. With "time", an
             arrival may land in another step even without a change
    draft_length  the most drafts of a row, 0 for none; None: as many as in the log
    cost     the cost of a step; None: the best fit to the logged run. With a cost of your own, compare
             with `what_if(log, cost=cost)`; otherwise the machine is part of the difference.

    Raises ConfigError for an unknown setting or value, for a missing part, and if a request of the log
    would be rejected; ValueError for a log whose beginning was dropped, or that does not know arrivals.
    A part of a long log is a `LogPart`.
    """
    inputs = replayable(log)
    workload = Workload.from_log(inputs, pinned)
    started = started_of(log)
    assert started is not None
    parts = {
        name: changes.pop(name)
        for name in DECIDING_PARTS
        if not isinstance(changes.get(name, ""), str)
    }
    config = changed_config(started, changes)
    check_parts(started, config, parts, changes)
    model = cost or fit(log).cost
    workload.drafting = with_length(workload.drafting, draft_length)
    try:
        replay = simulate(workload, config, cost=model, **parts)
    except RequestError as error:
        raise ConfigError(
            f"with these settings a request of the log is rejected: {error}"
        ) from error
    if cost is None:
        header = replay[0]
        assert isinstance(header, RunStarted)
        header.t["fitted"] = fit_entry(log, model, pinned)
    return replay if inputs is log else with_unknown_tokens(replay, simulation_of(started))


def fit_entry(log: EventLog, model: Cost, pinned: str) -> dict[str, Any]:
    """Return what the header of a replay says of the prices that were fitted to a log."""
    started = started_of(log)
    assert started is not None
    return {
        "unix_us": started.t.get("unix_us"),
        "pinned": pinned,
        "step_us": [
            round(model.of(Work.of(plan.rows)) * US_PER_MS) if plan else 0
            for plan, _ in finished_steps(log)
        ],
        "held_back": error_record(held_back(log)),
    }


def error_record(error: HeldBack | None) -> dict[str, Any]:
    """Return the error on held-back steps as JSON values, with a `text`."""
    names = ("steps", "median", "p90", "bias")
    if error is None:
        text = f"Held-back error: unknown, because the log has fewer than {FEWEST_STEPS} steps"
        return {**dict.fromkeys(names), "steps": 0, "text": text}
    return {**{name: getattr(error, name) for name in names}, "text": str(error)}


def simulation_of(started: RunStarted) -> dict[str, Any]:
    """Return the `source` of a replay of another engine's run."""
    engine = started.source.get("engine", "the run").removeprefix(_SIMULATION)
    groups = {name: started.source[name] for name in ("groups",) if name in started.source}
    return groups | {
        "engine": f"{_SIMULATION}{engine}",
        "recorder": "what_if",
        "facts": simulated_facts(_KNOWN),
    }


_SIMULATION = "simulation of "


def changed_config(started: RunStarted | KeyframeState, changes: dict[str, Any]) -> EngineConfig:
    """Return the settings of a logged run with changes.

    A run of vLLM or SGLang has, where it does not say otherwise, the settings that decide as it does.
    Raises ConfigError for an unknown setting, a wrong value, or a size that the log does not have.
    """
    settings = dict(started.settings)
    fields = EngineConfig.__struct_fields__
    for name in changes:
        if name not in fields:
            raise ConfigError(
                f"{name} is not a setting; there are {', '.join(fields)}, and the parts "
                f"{', '.join(DECIDING_PARTS)}"
            )
    if "num_blocks" in settings and "block_size" in settings:
        settings.setdefault("max_kv_tokens", settings["num_blocks"] * settings["block_size"])
    given = {name: settings[name] for name in fields if name in settings} | changes
    for name in _SIZES:
        if name not in given:
            raise ConfigError(f"{name} is not in the log, so it has to be given: {name}=...")
    engine = str(started.source.get("engine", "")).removeprefix(_SIMULATION).lower()
    preset = next((name for name in ("vllm", "sglang") if engine.startswith(name)), None)
    return EngineConfig.like(preset, **given) if preset else EngineConfig(**given)


_SIZES = ("token_budget", "max_batch_size", "max_kv_tokens", "block_size")


def check_parts(
    started: RunStarted, config: EngineConfig, parts: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Raise ConfigError if the logged run had a part that cannot be made from its name."""
    if started.source:
        return  # its parts are another engine's
    built_in = dict(BUILT_IN)
    built_in["policy"] = POLICIES[config.policy].__name__
    built_in["eviction"] = EVICTIONS[config.eviction].__name__
    for name in DECIDING_PARTS:
        ran = started.classes.get(name) if name != "drafter" else None  # the log has its drafts
        if ran not in (None, built_in.get(name)) and name not in (*parts, *changes):
            raise ConfigError(
                f"the logged run used the {name} {ran}: pass {name}={ran}(...) in again"
            )
