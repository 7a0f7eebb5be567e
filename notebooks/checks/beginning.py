"""The beginning of a log, for a picture that must not show the future."""

from engine.core.log import EventLog
from engine.core.log.vocabulary import StepStarted


def until(log: EventLog, step: int) -> EventLog:
    """Return a log with the events through the end of `step`."""
    beginning = EventLog()
    for event in log:
        if isinstance(event, StepStarted) and event.step > step:
            break
        beginning.append(event)
    return beginning
