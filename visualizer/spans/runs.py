"""The runs of a log and their spans: an engine has one after the other, a cluster several at once."""

import time
from collections.abc import Iterable, Iterator

from engine.cluster.cluster_log import ClusterLog
from engine.cluster.events import ClusterStarted, Of, ReplicaJoined
from engine.core.log import EventLog
from engine.core.log.vocabulary import Event, Keyframe, RunStarted
from visualizer.reading.reading import read
from visualizer.reading.waterfall.waterfall import RequestTime
from visualizer.sources.reader import LogEvent
from visualizer.spans.ended import EndedRequests
from visualizer.spans.export import Outbox, RunSpans


class Runs:
    """Spans of all runs of a log.

    requests  how many have ended
    undated   whether the log does not say when it began: then it begins now
    """

    def __init__(self, outbox: Outbox) -> None:
        self.requests, self.undated = 0, False
        self._outbox = outbox
        self._current: dict[str, tuple[EndedRequests, RunSpans]] = {}  # by replica
        self._began: int | None = None  # when the gateway began, in microseconds since 1970
        self._offsets: dict[str, int] = {}  # from a replica's times to the gateway's

    def add_whole(self, log: EventLog | ClusterLog) -> Iterator[None]:
        """Add a log that has ended; yield after each request, so that its spans can be sent."""
        parts = [("", log)] if isinstance(log, EventLog) else []
        if isinstance(log, ClusterLog):
            for event in log.gateway():
                self._note(event)
            parts = [(one.run.replica, one.log) for one in log.parts]
        for replica, part in parts:
            if len(part):
                spans = self._spans(part[0], replica)
                for one in read(part).waterfall.each():
                    if one.reason is not None:
                        self._add(spans, (one,))
                        yield

    def add(self, events: Iterable[LogEvent]) -> None:
        """Add the next events of a log that grows. Raises LogError for one that does not fit."""
        of: dict[str, list[Event]] = {}
        for event in events:
            self._note(event)
            if isinstance(event, Of):
                replica, own = event.replica, event.event
            elif isinstance(event, Event):
                replica, own = "", event
            else:
                continue
            if isinstance(own, RunStarted | Keyframe):
                self._take(replica, of.pop(replica, []))
                self._end(replica)
                # A keyframe begins the next part of a recording, which has the same time zero.
                goes_on = isinstance(own, Keyframe) and replica in self._current
                spans = self._current[replica][1] if goes_on else self._spans(own, replica)
                self._current[replica] = EndedRequests(), spans
            of.setdefault(replica, []).append(own)
        for replica, own_events in of.items():
            self._take(replica, own_events)

    def end(self) -> None:
        """Add the requests that ended last."""
        for replica in self._current:
            self._end(replica)

    def _note(self, event: LogEvent) -> None:
        if isinstance(event, ClusterStarted):
            self._began = event.t.get("unix_us")
        elif isinstance(event, ReplicaJoined):
            self._offsets[event.replica] = event.t.get("offset", 0)

    def _spans(self, first: Event, replica: str) -> RunSpans:
        began, model = None, {}
        if isinstance(first, RunStarted):
            began, model = first.t.get("unix_us"), first.model
        elif self._began is not None:
            began = self._began + self._offsets.get(replica, 0)
        if began is None:  # it was made without times of this world, or begins in the middle
            began, self.undated = time.time_ns() // 1000, True
        return RunSpans(self._outbox, began, model.get("name", ""), replica)

    def _take(self, replica: str, events: list[Event]) -> None:
        if events:
            requests, spans = self._current[replica]
            self._add(spans, requests.take(events))

    def _end(self, replica: str) -> None:
        if replica in self._current:
            requests, spans = self._current[replica]
            self._add(spans, requests.end())

    def _add(self, spans: RunSpans, times: Iterable[RequestTime]) -> None:
        for one in times:
            spans.add(one)
            self.requests += 1
