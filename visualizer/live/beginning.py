"""Follow a long log from where its index ends: what the index has need not be read again."""

from pathlib import Path

import msgspec

from engine.core.log import EventLog, LogError
from visualizer.indexed.beside import index_of_beginning
from visualizer.indexed.indexed_log import log_of
from visualizer.indexed.part import next_step
from visualizer.logs import part_of
from visualizer.sources.follow import Beginning
from visualizer.sources.limits import MAX_FIRST_LINE
from visualizer.sources.own_logs import ENGINE_LOG

_SHOWN = 20_000  # events before the end of the index


def indexed_beginning(path: Path) -> Beginning | None:
    """Return what an index knows of a log that has grown since; None if the log has to be read.

    The log of another engine has to be: its lines depend on all lines before them.
    """
    try:
        index, size = index_of_beginning(path)
        with path.open("rb") as file:
            is_own = ENGINE_LOG.recognizes(file.readline(MAX_FIRST_LINE))
        log = log_of(index)
        if not isinstance(log, EventLog) or not is_own or index.directory.damage:
            return None
        events = part_of(log, next_step(log, max(0, len(log) - _SHOWN)), len(log))
        state = msgspec.json.encode(log.state().keyframe())
    except (LogError, OSError):
        return None
    return Beginning([*events], state, len(log), size)
