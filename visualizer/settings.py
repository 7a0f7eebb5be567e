"""The settings of a run, from a whole log or from a window of it."""

from typing import Any

from engine.events import EventLog
from engine.events.vocabulary import Keyframe, RunStarted


def settings_of(log: EventLog) -> dict[str, Any]:
    """Return the EngineConfig's fields and `num_blocks`; empty for a log without an event."""
    match log[0] if len(log) else None:
        case RunStarted(settings=settings):
            return settings
        case Keyframe(state=state):
            return dict(state["settings"])
    return {}
