"""Logs of replays that keep no events, only measures: a search has many replays, and long ones."""

from collections.abc import Collection

from msgspec.structs import replace

from engine.cluster.cluster_log import ClusterLog
from engine.cluster.events import AnyClusterEvent, Of, Placed, Routed
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.log_part import Window
from engine.simulation.measures import SampleCollector, Samples, merged


class MeasuredLog(EventLog):
    """The log of an engine."""

    def __init__(self, without: Collection[int], window: Window | None) -> None:
        super().__init__()
        self._collector = SampleCollector(without=without, window=window)
        self._next_seq = 0

    @property
    def next_seq(self) -> int:
        """See `EventLog`."""
        return self._next_seq

    def append(self, event: v.Event) -> None:
        """Measure an event."""
        self._collector.add(event)
        self._next_seq += 1

    def end(self) -> Samples:
        """Return the samples."""
        return self._collector.end()


class MeasuredClusterLog(ClusterLog):
    """The log of a simulated cluster without faults: a request arrives when the router has it.

    without  numbers in the cluster of requests whose times do not count
    """

    def __init__(self, without: Collection[int], window: Window | None) -> None:
        super().__init__()
        self._without, self._measured = without, window
        self._routed_at = dict[int, int]()
        self._placed = dict[tuple[str, int], int]()  # its replica and number there -> number
        self._replicas = dict[str, tuple[SampleCollector, set[int]]]()  # with requests to ignore

    def append(self, event: AnyClusterEvent) -> None:
        """Measure an event."""
        match event:
            case Routed():
                self._routed_at[event.request] = event.t["at"]
            case Placed():
                self._placed[event.replica, event.its_request] = event.request
            case Of():
                self._add(event.replica, event.event)

    def end(self) -> Samples:
        """Return the samples of all replicas."""
        return merged(collector.end() for collector, _ in self._replicas.values())

    def _add(self, replica: str, event: v.Event) -> None:
        if replica not in self._replicas:
            ignored = set[int]()
            collector = SampleCollector(without=ignored, window=self._measured)
            self._replicas[replica] = collector, ignored
        collector, ignored = self._replicas[replica]
        if isinstance(event, v.RequestArrived):
            request = self._placed.pop((replica, event.request))
            if request in self._without:
                ignored.add(event.request)
            event = replace(event, t=event.t | {"at": self._routed_at.pop(request)})
        collector.add(event)
