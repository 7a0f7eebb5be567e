"""A part of a long run that can be replayed by itself: what-if on a recording of any size.

    part = LogPart.cut(log, begin, end)    the events log[begin:end], after a keyframe
    what_if(part, token_budget=32)        the requests of that part, replayed

A replay has to begin as the part did, with a filled prefix cache, and with requests in the batch and in
the queue; `workload.py` makes inputs of them.
"""

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog, LogError


class LogPart(EventLog):
    """Events of a run after a keyframe. `started` is the beginning of the run."""

    started: v.RunStarted

    @classmethod
    def cut(cls, log: EventLog, begin: int, end: int) -> "LogPart":
        """Return the part log[begin:end]. Raises LogError if the log's own beginning is missing."""
        started = started_of(log)
        if started is None:
            raise LogError("the log does not begin with run_started, so no part can be replayed")
        if not begin:
            return cls.after(started, log[:end])
        keyframe = log.state(log.next_seq - len(log) + begin - 1).keyframe()
        return cls.after(started, [keyframe, *log[begin:end]])

    @classmethod
    def after(cls, started: v.RunStarted, events: list[v.Event]) -> "LogPart":
        """Return the part with these events, which begin with a keyframe or with the run."""
        part = cls.from_events(events)
        part.started = started
        return part


def started_of(log: EventLog) -> v.RunStarted | None:
    """Return the beginning of a log's run; None if the log does not have it."""
    if isinstance(log, LogPart):
        return log.started
    first = log[0] if len(log) else None
    return first if isinstance(first, v.RunStarted) else None


def outer_requests(log: EventLog) -> tuple[set[int], set[int]]:
    """Return the requests that arrived before the log begins, and those that ended after its end."""
    before = {one.id for event in log.of(v.Keyframe) for one in event.state.requests}
    after = before | {one.request for one in log.each(v.RequestArrived)}
    after |= {one.request for one in log.each(v.Forked)}
    return before, after - {one.request for one in log.each(v.RequestFinished)}
