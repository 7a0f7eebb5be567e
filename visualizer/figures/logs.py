"""The logs that a figure draws: one, or several by name."""

from collections.abc import Mapping

from engine.events import EventLog
from visualizer.logs import LogLike, read_log

Logs = LogLike | Mapping[str, LogLike]
MAX_POINTS = 1500  # a screen cannot show more


def logs_by_name(logs: Logs) -> dict[str, EventLog]:
    """Return {name: log} in the given order; a single log has the name ""."""
    if isinstance(logs, Mapping):
        if not logs:
            raise ValueError("logs is empty: give one log, or several as {name: log}")
        return {str(name): read_log(log) for name, log in logs.items()}
    return {"": read_log(logs)}
