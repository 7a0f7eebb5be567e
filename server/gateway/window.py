"""The last events of the cluster log, in a form that a viewer can join at any time."""

import secrets

from engine.cluster.cluster_log import ClusterLog, ClusterState
from engine.cluster.events import AnyClusterEvent
from server.core.event_log import Changes


class ClusterWindow(ClusterLog, Changes):
    """The last `size` events. Lives on the event loop.

    run    names this log: event numbers of another run mean nothing here
    state  all events, folded: the replicas that are present and their states
    """

    def __init__(self, size: int) -> None:
        ClusterLog.__init__(self, size)
        Changes.__init__(self)
        self.run = secrets.token_hex(4)
        self.state = ClusterState()

    def append(self, event: AnyClusterEvent) -> None:
        """Add an event and wake the viewers."""
        self.state.add(event)
        super().append(event)
        self.wake()
