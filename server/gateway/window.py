"""The last events of the cluster log, in a form that a viewer can join at any time.

Like one server's window (`server/core/event_log.py`), it folds one old event per new one, so no event
takes longer than another. `ClusterLog(window=)` folds half a window at once, for programs.
"""

import secrets
from collections import deque
from collections.abc import Iterator
from itertools import islice

from engine.cluster.cluster_log import ClusterLog, ClusterState
from engine.cluster.events import AnyClusterEvent
from server.core.event_log import Changes


class ClusterWindow(ClusterLog, Changes):
    """The last `size` events. Lives on the event loop.

    run        names this log: event numbers of another run mean nothing here
    first_seq  number of the oldest event kept
    state      all events, folded: the replicas that are present and their states
    """

    def __init__(self, size: int) -> None:
        ClusterLog.__init__(self)
        Changes.__init__(self)
        self._size = size
        self._recent: deque[AnyClusterEvent] = deque()
        self._oldest = ClusterState()  # the state before the oldest event kept
        self.first_seq = 0
        self.run = secrets.token_hex(4)
        self.state = ClusterState()

    def append(self, event: AnyClusterEvent) -> None:
        """Add an event and wake the viewers."""
        self.state.add(event)
        self._recent.append(event)
        if len(self._recent) > self._size:
            self._oldest.add(self._recent.popleft())
            self.first_seq += 1
        self.wake()

    @property
    def next_seq(self) -> int:
        """The number of the next event."""
        return self.first_seq + len(self._recent)

    def since(self, seq: int) -> list[AnyClusterEvent]:
        """Return the events with number `seq` and later."""
        new = islice(reversed(self._recent), max(0, self.next_seq - seq))  # newest events first
        return list(new)[::-1]

    def head(self) -> list[AnyClusterEvent]:
        """Return what precedes the oldest event kept, so that both together are a complete log."""
        return self._oldest.head() if self.first_seq else []

    def __len__(self) -> int:
        return len(self.head()) + len(self._recent)

    def __iter__(self) -> Iterator[AnyClusterEvent]:
        yield from self.head()
        yield from self._recent
