"""The cluster log: append, read, save, load, split.

One file for a gateway and all its replicas, JSON Lines like `EventLog`. It splits back into one
`EventLog` for each run of a replica, so everything that reads an engine's log reads a replica's.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple, Protocol, Self

import msgspec

from engine.cluster.events import (
    CLUSTER_SCHEMA_VERSION,
    AnyClusterEvent,
    ClusterStarted,
    Of,
    ReplicaEjected,
    ReplicaJoined,
    ReplicaLeft,
    ReplicaReturned,
)
from engine.core.log.fold import State
from engine.core.log.log import NOT_JSON, EventLog, JsonLines, LogError, apply, check_schema
from engine.core.log.vocabulary import (
    SCHEMA_VERSION,
    Admitted,
    Event,
    Keyframe,
    RequestArrived,
    RunStarted,
)

_decoder = msgspec.json.Decoder(AnyClusterEvent)


class RunCounter:
    """Tells, event by event, to which run of its replica each event of a cluster log belongs.

    A replica's engine that starts anew begins a run. A replica that the gateway had lost sight of goes
    on with its run, in a second part if events are missing between.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._ends: dict[str, int] = {}  # replica -> number of its last event
        # By replica: the name of the run of its last event, and of its next one.
        self._names: dict[str, list[str]] = {}

    def take(self, event: AnyClusterEvent) -> Literal["run", "part", "known", ""]:
        """Count an event, and return what begins with it: a run, another part of one, or nothing.

        "known" is a keyframe that repeats what the events before it have said.
        """
        if isinstance(event, ReplicaJoined):
            self._names.setdefault(event.replica, ["", ""])[1] = event.run
        if not isinstance(event, Of):
            return ""
        replica, end = event.replica, self._ends.get(event.replica)
        self._ends[replica] = event.seq
        if not isinstance(event.event, RunStarted | Keyframe):
            return ""
        before, name = self._names.get(replica, ("", ""))
        self._names[replica] = [name, name]
        goes_on = before == name and isinstance(event.event, Keyframe)
        if goes_on and end is not None and event.seq >= end:
            return "known" if event.seq == end else "part"
        self._numbers[replica] = self.number(replica) + 1
        return "run"

    def number(self, replica: str) -> int:
        """Return the number of a replica's latest run, from 1; 0 before its first event."""
        return self._numbers.get(replica, 0)


@dataclass
class ReplicaRun:
    """A run of a replica's engine, as far as the gateway followed it.

    number  which of the replica's runs it is, from 1
    joined  each time it joined, and when its clock was set again
    left    each time it left; it is present at the end of the log if it joined after that
    parts   its events: several logs if the gateway missed some between; all but the first begin with a
            keyframe
    """

    replica: str
    number: int
    joined: list[ReplicaJoined] = field(default_factory=list)
    left: list[ReplicaLeft] = field(default_factory=list)
    parts: list[EventLog] = field(default_factory=list)

    @property
    def offset(self) -> int:
        """The microseconds to add to the replica's times to get cluster time."""
        return int(self.joined[-1].t.get("offset", 0)) if self.joined else 0

    def part_with(self, request: int) -> EventLog:
        """Return the part in which a request was admitted first; else the one in which it arrived."""
        for part in self.parts:
            if any(one.request == request for one in part.each(Admitted)):
                return part
        for part in self.parts:
            if any(one.request == request for one in part.each(RequestArrived)):
                return part
        return self.parts[-1]


class Growing(Protocol):
    """The log of a part while it is split off."""

    def append(self, event: Event, /) -> None:
        """Add its next event."""

    def end(self) -> EventLog:
        """Return the log."""


class _Collected(list[Event]):
    """A part in memory."""

    def end(self) -> EventLog:
        return EventLog.from_events(self)


class RunSplitter:
    """Splits a cluster log, event by event, into the logs of its replicas' runs.

    begin  makes the log of a part, which then gets its events
    """

    def __init__(self, begin: Callable[[], Growing]) -> None:
        self._begin, self._counter = begin, RunCounter()
        self._runs: dict[str, list[ReplicaRun]] = {}
        self._growing: dict[str, Growing] = {}  # the latest part of each replica
        self._joined: dict[str, list[ReplicaJoined]] = {}  # since its last event

    def add(self, event: AnyClusterEvent) -> None:
        """Add the next event of the cluster log."""
        begins = self._counter.take(event)
        if isinstance(event, ReplicaJoined):
            self._joined.setdefault(event.replica, []).append(event)
        elif isinstance(event, ReplicaLeft) and event.replica in self._runs:
            self._runs[event.replica][-1].left.append(event)
        elif isinstance(event, Of):
            replica = event.replica
            if begins in ("run", "part"):
                self._end(replica)
                self._growing[replica] = self._begin()
            if begins == "run":
                run = ReplicaRun(replica, self._counter.number(replica))
                self._runs.setdefault(replica, []).append(run)
            if begins != "known":
                self._growing[replica].append(event.event)
            self._runs[replica][-1].joined += self._joined.pop(replica, [])

    def end(self) -> dict[str, list[ReplicaRun]]:
        """Return the runs of each replica; see `ClusterLog.runs`."""
        for replica in list(self._growing):
            self._end(replica)
        return self._runs

    def _end(self, replica: str) -> None:
        if replica in self._growing:
            self._runs[replica][-1].parts.append(self._growing.pop(replica).end())


def gateway_events(events: Iterable[AnyClusterEvent]) -> Iterator[AnyClusterEvent]:
    """Yield what the gateway did, and each event that begins a part, with the one before it."""
    before: dict[str, Of] = {}  # the last event of each replica, unless it was yielded
    for event in events:
        if not isinstance(event, Of):
            yield event
        elif isinstance(event.event, RunStarted | Keyframe):
            if event.replica in before:
                yield before.pop(event.replica)
            yield event
        else:
            before[event.replica] = event


class Part(NamedTuple):
    """What a cluster log has of a replica, from its start or a gap to the next: one engine's log.

    name  "0", or "0, run 2, part 1" if there are several
    """

    name: str
    run: ReplicaRun
    log: EventLog


class ClusterLog(JsonLines):
    """Events of a cluster, in the order in which the gateway learned of them.

    `window` is the number of events to keep beside the head; None keeps all. An event that leaves the
    window is folded into the head: cluster_started, and for each replica that is present its
    replica_joined, a keyframe, and that it was ejected, if it was.

    first_seq  number of the oldest event kept
    """

    def __init__(self, window: int | None = None) -> None:
        if window is not None and window < 2:
            raise ValueError(f"window must be at least 2 or None, got {window}")
        self._window = window
        self._events = deque[AnyClusterEvent]()
        self._oldest = ClusterState()  # the state before the oldest event kept
        self.first_seq = 0

    def append(self, event: AnyClusterEvent) -> None:
        """Add an event."""
        self._events.append(event)
        if self._window is not None and len(self._events) > self._window:
            self._oldest.add(self._events.popleft())
            self.first_seq += 1

    @property
    def next_seq(self) -> int:
        """The number of the next event."""
        return self.first_seq + len(self._events)

    def since(self, seq: int) -> list[AnyClusterEvent]:
        """Return events with number `seq` and later, as far as the window still has them."""
        new = islice(reversed(self._events), max(0, self.next_seq - seq))  # newest events first
        return list(new)[::-1]

    def head(self) -> list[AnyClusterEvent]:
        """Return what precedes the oldest event kept, so that both together are a complete log."""
        return self._oldest.head() if self.first_seq else []

    def __len__(self) -> int:
        return len(self.head()) + len(self._events)

    def __iter__(self) -> Iterator[AnyClusterEvent]:
        yield from self.head()
        yield from self._events

    def __repr__(self) -> str:
        replicas = {event.replica for event in self if isinstance(event, ReplicaJoined)}
        return f"ClusterLog({len(self)} events, {len(replicas)} replicas)"

    @property
    def runs(self) -> dict[str, list[ReplicaRun]]:
        """Every run of each replica, by id, in the order in which they joined. Computed on access."""
        splitter = RunSplitter(_Collected)
        for event in self:
            splitter.add(event)
        return splitter.end()

    def gateway(self) -> Iterator[AnyClusterEvent]:
        """Yield what the gateway did, and of the replicas' events those that a `RunCounter` needs."""
        return gateway_events(self)

    @property
    def parts(self) -> list[Part]:
        """Every log that this one splits into, replica by replica. Computed on access."""
        return [
            Part(_name(run, len(runs), number if len(run.parts) > 1 else 0), run, part)
            for runs in self.runs.values()
            for run in runs
            for number, part in enumerate(run.parts, start=1)
        ]

    @property
    def replicas(self) -> dict[str, EventLog]:
        """The latest log of each replica, by id: its last run, after its last gap; `runs` has all."""
        return {replica: runs[-1].parts[-1] for replica, runs in self.runs.items()}

    def offset(self, replica: str) -> int:
        """Return the microseconds to add to a replica's times to get cluster time.

        Raises LogError for a replica that is not in the log.
        """
        joined = {event.replica: event for event in self if isinstance(event, ReplicaJoined)}
        if replica not in joined:
            known = ", ".join(joined) or "none"
            raise LogError(f"replica: {replica!r} is not in this log; its replicas are {known}")
        return int(joined[replica].t.get("offset", 0))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """See `JsonLines`."""
        log = cls()
        log._events.extend(cls._decoded(data, ClusterDecoder().decode, "a cluster"))
        return log


def _name(run: ReplicaRun, runs: int, part: int) -> str:
    words = [run.replica, f"run {run.number}" * (runs > 1), f"part {part}" * bool(part)]
    return ", ".join(filter(None, words))


class ClusterDecoder:
    """Decodes the lines of one cluster log, in order, and checks that they follow each other.

    is_first  no line has been decoded yet
    has_gap   lines are known to be missing, so a replica's events need not follow each other
    """

    def __init__(self) -> None:
        self.is_first, self.has_gap = True, False
        self._ends: dict[str, int] = {}  # replica -> number of its last event

    def decode(self, line: bytes) -> AnyClusterEvent:
        """Return the event of a line. Raises LogError, without the line's number."""
        hint = "; a cluster log must begin with cluster_started" if self.is_first else ""
        try:
            event: AnyClusterEvent = _decoder.decode(line)
            self._check(event)
        except (*NOT_JSON, LogError) as error:
            raise LogError(f"{error}{hint}") from error
        return event

    def _check(self, event: AnyClusterEvent) -> None:
        if self.is_first != isinstance(event, ClusterStarted):
            raise LogError("cluster_started must be the first event, and only that")
        self.is_first = False
        if isinstance(event, ClusterStarted):
            check_schema("cluster log", event.schema, CLUSTER_SCHEMA_VERSION)
        elif isinstance(event, Of):
            self._check_of(event)

    def _check_of(self, of: Of) -> None:
        end = self._ends.get(of.replica)
        if isinstance(of.event, RunStarted):
            check_schema("replica's log", of.event.schema, SCHEMA_VERSION)
        elif self.has_gap:
            pass
        elif end is None and not isinstance(of.event, Keyframe):
            raise LogError(
                f"replica {of.replica}: its events must begin with run_started or keyframe"
            )
        elif end is not None and of.seq != end + 1 and not isinstance(of.event, Keyframe):
            raise LogError(
                f"replica {of.replica}: event {of.seq} follows event {end}; lines are missing"
            )
        self._ends[of.replica] = of.seq


class ClusterState:
    """A cluster log, folded: the replicas that are present, and their engines' states.

    joined   by replica: how it joined
    states   by replica: its engine's state, once its first event has arrived
    ejected  by replica: what says that it gets no requests, or only one to see whether it works
    """

    def __init__(self) -> None:
        self._started: ClusterStarted | None = None
        self.joined: dict[str, ReplicaJoined] = {}
        self.states: dict[str, State] = {}
        self.ejected: dict[str, list[ReplicaEjected | ReplicaReturned]] = {}

    def add(self, event: AnyClusterEvent) -> None:
        """Apply an event."""
        match event:
            case ClusterStarted():
                self._started = event
            case ReplicaJoined():
                self.joined[event.replica] = event
            case ReplicaLeft():
                for present in (self.joined, self.states, self.ejected):
                    present.pop(event.replica, None)
            case ReplicaEjected():
                self.ejected[event.replica] = [event]
            case ReplicaReturned(half_open=True):
                self.ejected.setdefault(event.replica, []).append(event)
            case ReplicaReturned():
                self.ejected.pop(event.replica, None)
            case Of():
                if isinstance(event.event, RunStarted | Keyframe):
                    self.states[event.replica] = State()
                apply(self.states[event.replica], event.event)

    def head(self) -> list[AnyClusterEvent]:
        """Return the events with which a log can go on from here."""
        head: list[AnyClusterEvent] = [self._started] if self._started is not None else []
        for replica, joined in self.joined.items():
            head.append(joined)
            if replica in self.states:
                keyframe = self.states[replica].keyframe()
                head.append(Of(replica, keyframe.seq, keyframe))
            head += self.ejected.get(replica, [])
        return head
