"""Keep the last part of a log that is too large for memory, after a keyframe of the earlier events."""

from collections import deque
from collections.abc import Sequence

from engine.cluster.cluster_log import ClusterLog, ClusterState
from engine.cluster.events import ClusterEvent
from engine.core.log import Event, EventLog, State
from engine.core.log.log import apply
from visualizer.sources.reader import LogEvent, SourceError


def left_out(events: int) -> str:
    """Say that so many events at the beginning of a log are left out."""
    return f"the first {events:,} events are left out; the state they led to is shown"


class Window:
    """Collects the events of a file in batches.

    `last` is how many bytes of the file to keep, in whole batches; None keeps all. Older batches are
    folded into a state, which raises LogError for an event that contradicts the events before it.
    """

    def __init__(self, last: int | None = None) -> None:
        self.folded = 0  # number of events that were folded and dropped
        self._last = last
        self._batches: deque[tuple[int, Sequence[LogEvent]]] = deque()
        self._size = 0  # bytes of the file that `_batches` covers
        self._engine = State()
        self._cluster = ClusterState()

    def add(self, batch: Sequence[LogEvent], size: int) -> None:
        """Add the events of the next `size` bytes of the file."""
        self._batches.append((size, batch))
        self._size += size
        while self._last is not None and self._size - self._batches[0][0] >= self._last:
            size, oldest = self._batches.popleft()
            self._size -= size
            self.folded += len(oldest)
            for event in oldest:
                if isinstance(event, Event):
                    apply(self._engine, event)
                else:
                    self._cluster.add(event)

    def log(self) -> EventLog | ClusterLog:
        """Return the log. Raises SourceError if there was no event."""
        events = [event for _size, batch in self._batches for event in batch]
        if self.folded:
            is_cluster = self._cluster.joined or isinstance(events[0], ClusterEvent)
            events[:0] = self._cluster.head() if is_cluster else [self._engine.keyframe()]
        if not events:
            raise SourceError("the log has no event yet")
        if isinstance(events[0], Event):
            return EventLog.from_events(events)  # type: ignore[arg-type]  # a file has one kind of event
        log = ClusterLog()
        for event in events:
            log.append(event)  # type: ignore[arg-type]
        return log
