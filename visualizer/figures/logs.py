"""The logs that a figure draws: a single log, or several by name."""

from collections.abc import Mapping

from engine.events import EventLog
from visualizer.logs import LogLike, read_log

Logs = LogLike | Mapping[str, LogLike]
MAX_POINTS = 1500  # more points than this would not be visible on a screen


def logs_by_name(logs: Logs) -> dict[str, EventLog]:
    """Return {name: log} in the given order. A single log gets the name ""."""
    if isinstance(logs, Mapping):
        if not logs:
            raise ValueError("logs must not be empty: pass one log, or several as {name: log}")
        return {str(name): read_log(log) for name, log in logs.items()}
    return {"": read_log(logs)}
