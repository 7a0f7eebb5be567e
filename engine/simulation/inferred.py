"""Add to a recording what it does not say: block tables, hits, the prefix tree, evictions, causes.

    full = inferred(log)

A recording of SGLang has no blocks, because they are in the GPU's memory. But the engine here decides
as SGLang does, so a replay of the recording's inputs has the same steps. While it has, its memory is
that of the recorded run, up to the numbers of the blocks. The log that is returned has the recorded
times, tokens and ends, and all else from the replay, marked as inferred.
"""

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.cost_runner import Cost
from engine.simulation.facts import knowledge, simulated_facts
from engine.simulation.replayable import has_unknown, replayable, replayed_steps
from engine.simulation.reproduced import reproduced
from engine.simulation.simulate import simulate
from engine.simulation.what_if import changed_config
from engine.simulation.workload import Workload


def inferred(log: EventLog) -> EventLog:
    """Return a recording with the memory of its replay.

    Raises ValueError for a log without token ids or with blocks of its own, and if the replay decides
    any step otherwise.
    """
    started = log[0] if len(log) else None
    if not isinstance(started, v.RunStarted) or has_unknown(log):
        raise ValueError(
            "blocks are inferred from token ids, which the log lacks: record it with "
            "UNDERGLASS_RECORD_TOKENS=1"
        )
    if knowledge(started.source, "cached_tokens") == "recorded":
        raise ValueError("the log says itself which blocks and hits there were")
    workload = Workload.from_log(replayable(log), "step")
    replay = simulate(workload, changed_config(started, {}), cost=Cost(1.0, 0.0))
    same = reproduced(log, replay)
    if same.first is not None:
        raise ValueError(f"blocks cannot be inferred, because a replay differs: {same}")
    numbers = replayed_steps(log)
    arrivals = {event.request: event for event in log.of(v.RequestArrived)}
    ends = {event.request: event for event in log.of(v.RequestFinished)}
    steps = {numbers[one.step]: one for one in log.of(v.StepFinished) if one.step in numbers}
    full = EventLog()
    for event in replay:
        match event:
            case v.RunStarted():
                full.append(_started(started, event))
            case v.RequestArrived():
                full.append(arrivals[event.request])
            case v.StepFinished() if event.step in steps:
                full.append(msgspec.structs.replace(steps[event.step], step=event.step))
            case v.RequestFinished():
                full.append(ends.get(event.request, event))
            case _:
                full.append(event)
    return full


def _started(recorded: v.RunStarted, replayed: v.RunStarted) -> v.RunStarted:
    facts = recorded.source.get("facts", {})
    source = recorded.source | {"facts": simulated_facts(facts)}
    settings = replayed.settings | recorded.settings
    return msgspec.structs.replace(recorded, source=source, settings=settings)
