"""Lesson 00: in which step does each request get its first token?"""

from engine.events import EventLog
from engine.events.vocabulary import StepFinished, StepStarted


def first_token_steps(log: EventLog) -> dict[int, int]:
    """One pass: remember the step that runs, and whom it brings a token for the first time."""
    first: dict[int, int] = {}
    step = 0
    for event in log:
        if isinstance(event, StepStarted):
            step = event.step
        elif isinstance(event, StepFinished):
            for row in event.tokens:
                first.setdefault(row.request, step)
    return first
