"""A log up to a step, for a picture that must not tell how it goes on."""

from engine.events import EventLog
from engine.events.vocabulary import StepStarted


def until(log: EventLog, step: int) -> EventLog:
    """The log's beginning, through the end of `step`, as a log of its own."""
    beginning = EventLog()
    for event in log:
        if isinstance(event, StepStarted) and event.step > step:
            break
        beginning.append(event)
    return beginning
