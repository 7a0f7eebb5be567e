"""The beginning of a log, for a picture that must not show the future."""

from msgspec.structs import replace

from engine.core.log import EventLog
from engine.core.log.vocabulary import RunStarted, StepStarted
from engine.simulation.choice import CUT


def until(log: EventLog, step: int) -> EventLog:
    """Return a log with the events through the end of `step`, which nothing can run on from there."""
    beginning = EventLog()
    for event in log:
        if isinstance(event, StepStarted) and event.step > step:
            break
        cut = replace(event, t=event.t | {CUT: step}) if isinstance(event, RunStarted) else event
        beginning.append(cut)
    return beginning
