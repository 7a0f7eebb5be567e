"""A part of a long run that can be replayed by itself: what-if on a recording of any size.

    part = LogPart.cut(log, begin, end)    the events log[begin:end], after a keyframe
    what_if(part, token_budget=32)        the requests of that part, replayed

A replay has to begin as the part did, with a filled prefix cache, and with requests in the batch and in
the queue; `workload.py` makes inputs of them. It ends when the part does. A request that waited before
the part began counts from there on, and one that had not ended at its end counts until then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog, LogError


@dataclass(frozen=True, slots=True)
class Window:
    """The time of a part: what its requests wait before and after it does not count.

    begin_us, end_us  when its first step began, and when its last one ended
    earlier   the requests from before; of the `computed` ones, which are no longer in the queue,
              something was computed before, and the `answered` ones had a token
    """

    begin_us: int
    end_us: int
    earlier: frozenset[int]
    computed: frozenset[int]
    answered: frozenset[int]


@dataclass(eq=False, slots=True)
class Origin:
    """Where a part of a log begins: with the event at index `begin`.

    groups  what several KV cache groups had there, once it is known; see `group_memory.py`
    """

    log: EventLog
    begin: int
    groups: Any = None


class LogPart(EventLog):
    """Events of a run after a keyframe.

    started  the beginning of the run
    later    how many tokens its requests got after it, as far as that is known
    origin   where it was cut; None: it is the beginning of its run
    """

    started: v.RunStarted
    later: Mapping[int, int] = MappingProxyType({})
    origin: "Origin | None" = None

    @classmethod
    def cut(cls, log: EventLog, begin: int, end: int) -> "LogPart":
        """Return the part log[begin:end]. Raises LogError if the log's own beginning is missing.

        Nothing is known of what its requests got `later`.
        """
        started = started_of(log)
        if started is None:
            raise LogError("the log does not begin with run_started, so no part can be replayed")
        if not begin:
            return cls.after(started, log[:end])
        part = cls.after(started, [keyframe_before(log, begin), *log[begin:end]])
        part.origin = Origin(log, begin)
        return part

    @classmethod
    def after(cls, started: v.RunStarted, events: list[v.Event]) -> "LogPart":
        """Return the part with these events, which begin with a keyframe or with the run."""
        part = cls.from_events(events)
        part.started = started
        return part

    @property
    def window(self) -> Window | None:
        """Its time; None for a log without times."""
        times = [one.t for one in self.each(v.StepFinished) if "end" in one.t]
        if not times:
            return None
        states = [event.state for event in self.of(v.Keyframe)]
        live = [one for state in states for one in state.requests]
        answered = frozenset(one.id for one in live if len(one.tokens) > one.prompt_length)
        return Window(
            begin_us=times[0]["start"],
            end_us=max(one["end"] for one in times),
            earlier=frozenset(one.id for one in live),
            computed=answered.union(
                *(state.running for state in states), (one.id for one in live if one.preemptions)
            ),
            answered=answered,
        )


def keyframe_before(log: EventLog, at: int) -> v.Keyframe:
    """Return the state before the event at index `at` of a log."""
    return log.state(log.next_seq - len(log) + at - 1).keyframe()


def started_of(log: EventLog) -> v.RunStarted | None:
    """Return the beginning of a log's run; None if the log does not have it."""
    if isinstance(log, LogPart):
        return log.started
    first = log[0] if len(log) else None
    return first if isinstance(first, v.RunStarted) else None


def unended_requests(log: EventLog) -> set[int]:
    """Return the requests that had not ended when the log did."""
    live = {one.id for event in log.of(v.Keyframe) for one in event.state.requests}
    live |= {one.request for one in log.each(v.RequestArrived)}
    live |= {one.request for one in log.each(v.Forked)}
    return live - {one.request for one in log.each(v.RequestFinished)}
