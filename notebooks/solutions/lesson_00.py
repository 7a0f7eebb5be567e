"""Lesson 00: in which step does each request get its first token?"""

from engine.core.log import EventLog
from engine.core.log.vocabulary import StepFinished, StepStarted


def first_token_steps(log: EventLog) -> dict[int, int]:
    """Go through the log once; remember the current step and each request's first token."""
    first: dict[int, int] = {}
    step = 0
    for event in log:
        if isinstance(event, StepStarted):
            step = event.step
        elif isinstance(event, StepFinished):
            for row in event.tokens:
                first.setdefault(row.request, step)
    return first
