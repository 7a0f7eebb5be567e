"""The settings of a run, read from a whole log or from a window of one."""

from typing import Any

from engine.events import EventLog
from engine.events.vocabulary import Keyframe, RunStarted


def settings_of(log: EventLog) -> dict[str, Any]:
    """Return the fields of EngineConfig and `num_blocks`, or an empty dict for an empty log."""
    match log[0] if len(log) else None:
        case RunStarted(settings=settings):
            return settings
        case Keyframe(state=state):
            return dict(state["settings"])
    return {}
