"""The cluster log: append, read, save, load, split.

One file for a gateway and all its replicas, JSON Lines like `EventLog`. It splits back into one
`EventLog` per replica, so everything that reads an engine's log reads a replica's.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Self

import msgspec

from engine.cluster.events import (
    CLUSTER_SCHEMA_VERSION,
    AnyClusterEvent,
    ClusterStarted,
    Of,
    ReplicaJoined,
    ReplicaLeft,
)
from engine.core.log.fold import State
from engine.core.log.log import NOT_JSON, EventLog, JsonLines, LogError, apply, check_schema
from engine.core.log.vocabulary import SCHEMA_VERSION, Event, Keyframe, RunStarted

_decoder = msgspec.json.Decoder(AnyClusterEvent)


class ClusterLog(JsonLines):
    """Events of a cluster, in the order in which the gateway learned of them.

    `window` is the number of events to keep beside the head; None keeps all. An event that leaves the
    window is folded into the head: cluster_started, and for each replica that is present its
    replica_joined and a keyframe.

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
    def replicas(self) -> dict[str, EventLog]:
        """The log of each replica, by id, in the order in which they joined. Computed on access.

        A log begins at the replica's latest start, or after the latest gap in what the gateway received
        of it.
        """
        events: dict[str, list[Event]] = {}
        ends: dict[str, int] = {}  # replica -> number of its last event
        for one in self:
            if not isinstance(one, Of):
                continue
            if isinstance(one.event, RunStarted | Keyframe):
                if isinstance(one.event, Keyframe) and ends.get(one.replica) == one.seq:
                    continue  # it repeats what earlier events said
                events[one.replica] = []
            events[one.replica].append(one.event)
            ends[one.replica] = one.seq
        return {replica: EventLog.from_events(its) for replica, its in events.items()}

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


class ClusterDecoder:
    """Decodes the lines of one cluster log, in order, and checks that they follow each other."""

    def __init__(self) -> None:
        self._is_first = True
        self._ends: dict[str, int] = {}  # replica -> number of its last event

    def decode(self, line: bytes) -> AnyClusterEvent:
        """Return the event of a line. Raises LogError, without the line's number."""
        hint = "; a cluster log must begin with cluster_started" if self._is_first else ""
        try:
            event: AnyClusterEvent = _decoder.decode(line)
            self._check(event)
        except (*NOT_JSON, LogError) as error:
            raise LogError(f"{error}{hint}") from error
        return event

    def _check(self, event: AnyClusterEvent) -> None:
        if self._is_first != isinstance(event, ClusterStarted):
            raise LogError("cluster_started must be the first event, and only that")
        self._is_first = False
        if isinstance(event, ClusterStarted):
            check_schema("cluster log", event.schema, CLUSTER_SCHEMA_VERSION)
        elif isinstance(event, Of):
            self._check_of(event)

    def _check_of(self, of: Of) -> None:
        end = self._ends.get(of.replica)
        if isinstance(of.event, RunStarted):
            check_schema("replica's log", of.event.schema, SCHEMA_VERSION)
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

    joined  by replica: how it joined
    states  by replica: its engine's state, once its first event has arrived
    """

    def __init__(self) -> None:
        self._started: ClusterStarted | None = None
        self.joined: dict[str, ReplicaJoined] = {}
        self.states: dict[str, State] = {}

    def add(self, event: AnyClusterEvent) -> None:
        """Apply an event."""
        match event:
            case ClusterStarted():
                self._started = event
            case ReplicaJoined():
                self.joined[event.replica] = event
            case ReplicaLeft():
                self.joined.pop(event.replica, None)
                self.states.pop(event.replica, None)
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
        return head
