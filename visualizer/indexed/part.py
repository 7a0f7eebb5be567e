"""The part of a long log that is replayed: the steps that are asked for, or else the last ones."""

from bisect import bisect_left

from engine.core.log import EventLog, LogError
from engine.core.log import vocabulary as v
from engine.simulation.log_part import LogPart
from visualizer.indexed.indexed_log import IndexedLog

MOST = 30_000  # events of a log that are replayed at once; a replay takes some seconds then


def replayed_part(log: EventLog, first: int | None = None, last: int | None = None) -> EventLog:
    """Return a log's steps from `first` to `last`; None: as many as are replayed at once.

    A log that is not longer than that is returned as it is, if neither is given. Raises LogError if the
    log has no such steps, or if it lacks the beginning of its run.
    """
    if first is last is None and len(log) <= MOST:
        return log
    end = len(log) if last is None else begin_of(log, last + 1)
    begin = _next_step(log, max(0, end - MOST)) if first is None else begin_of(log, first)
    if not begin < end:
        raise LogError(
            f"the log has no steps from {first or 1} to {'its end' if last is None else last}"
        )
    return LogPart.cut(log, begin, end)


def begin_of(log: EventLog, step: int) -> int:
    """Return the index of the event with which a step starts, or the length of the log."""
    begin = 0
    if isinstance(log, IndexedLog):
        number = bisect_left([one.step for one in log.index.directory.chunks], step)
        begin = log.index.ends[number - 1] if number else 0
    return _next_step(log, begin, step) if step > 1 else 0


def _next_step(log: EventLog, begin: int, step: int = 0) -> int:
    """Return the index of the first event from `begin` on that starts a step, `step` or a later one."""
    for at in range(begin, len(log)):
        event = log[at]
        if isinstance(event, v.StepStarted) and event.step >= step:
            return at
    return len(log)
