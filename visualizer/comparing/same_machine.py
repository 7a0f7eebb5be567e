"""Retime a measured run with the cost model of its replay, to isolate the effect of the change.

`what_if` replays a log on a cost model that was fitted to that log. The model is not exact: if the
replay were compared with the measured times, the model's error would look like an effect of the
change. The replay's header holds the model's time for each step of the original run, and the
comparison uses those times.
"""

from statistics import fmean
from typing import Any

import msgspec

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from visualizer import read


def fit_record(replay: EventLog, log: EventLog) -> dict[str, Any] | None:
    """Return `fitted` from the header if `replay` replays `log` on a fitted cost model, else None."""
    original, found = log[0], fitted(replay)
    if found is None or not isinstance(original, v.RunStarted) or fitted(log):
        return None
    return found if found["unix_us"] == original.t.get("unix_us") else None


def fitted(log: EventLog) -> dict[str, Any] | None:
    """Return the fitted cost model's entry in a replay's header; None if the log has none."""
    started = log[0]
    return started.t.get("fitted") if isinstance(started, v.RunStarted) else None


def retime(log: EventLog, replay: EventLog) -> EventLog:
    """Return `log` with the same decisions but with times from the cost model.

    As in the replay, requests arrive at the end of the previous step, scheduling takes no time of its
    own and idle time is 0. An asynchronous step starts while the previous step is computed.
    """
    machine = replay[0]
    assert isinstance(machine, v.RunStarted)
    steps, now, timed = iter(machine.t["fitted"]["step_us"]), 0, EventLog()
    starts: dict[int, int] = {}
    for event in log:
        match event:
            case v.RunStarted(classes=ran):
                decided = {name: cls for name, cls in ran.items() if name in v.DECIDING_PARTS}
                kept = machine.classes.items()
                classes = {name: cls for name, cls in kept if name not in v.DECIDING_PARTS}
                timed.append(
                    msgspec.structs.replace(
                        event, classes=classes | decided, model=machine.model, clock=machine.clock
                    )
                )
            case v.RequestArrived() | v.EnginePaused() | v.EngineResumed():
                timed.append(msgspec.structs.replace(event, t=event.t | {"at": now}))
            case v.StepStarted():
                starts[event.step] = now
                timed.append(event)
            case v.StepFinished():
                start, end = starts.pop(event.step), now + next(steps)
                times = {"start": start, "scheduled": start, "end": end}
                if "launched" in event.t:
                    times |= {"launched": now, "ready": end}
                timed.append(msgspec.structs.replace(event, t=event.t | times))
                now = end
            case _:
                timed.append(event)
    return timed


def model_errors(measured: EventLog, timed: EventLog) -> dict[str, float]:
    """Return the model's mean error per request, in ms, as {"ttft": ..., "itl": ..., "e2e": ...}.

    `timed` is `measured` with the model's times. A measure without a value in any request is omitted.
    """
    rows = list(zip(read(measured).request_rows, read(timed).request_rows, strict=True))
    found: dict[str, float] = {}
    for measure in ("ttft", "itl", "e2e"):
        pairs = [
            (getattr(one, f"{measure}_ms"), getattr(two, f"{measure}_ms")) for one, two in rows
        ]
        errors = [abs(b - a) for a, b in pairs if a is not None and b is not None]
        if errors:
            found[measure] = fmean(errors)
    return found
