"""Show a running gateway and its replicas in a notebook. See `live.py` for one server."""

import json
import re
from typing import Any

import msgspec
from httpx_sse import ServerSentEvent

from engine.cluster.cluster_log import ClusterState
from engine.cluster.events import AnyClusterEvent, ClusterStarted
from visualizer.html import CLUSTER_MODULE
from visualizer.live.feed_widget import FeedWidget

_decode = msgspec.json.Decoder(AnyClusterEvent).decode
_encode = msgspec.json.Encoder().encode
_BEGINS = re.compile(r'\{"type":"cluster_started"')


class LiveCluster(FeedWidget):
    """A board of a gateway's event stream: its router and its replicas.

    url         the gateway's URL
    connected   whether the event stream is open
    """

    _esm = CLUSTER_MODULE

    def __init__(self, url: str, api_key: str | None = None) -> None:
        super().__init__(url, api_key)
        self._state: ClusterState | None = None
        self._last_id = ""  # id of the newest event, such as "5f0c9a1e:412"
        self._unsent: list[str] = []  # the lines of a current state, until its last line arrives

    def states(self) -> dict[str, dict[str, Any]]:
        """Return each replica's state after the newest event, as plain values (see `State.core`)."""
        with self._lock:
            if self._state is None:
                raise ValueError(f"no events from {self.url} yet: display the board first")
            return {replica: state.core() for replica, state in self._state.states.items()}

    def _send_state(self, view: str) -> None:
        with self._lock:
            if self._state is not None and self._last_id and self.connected:
                lines = [_encode(event).decode() for event in self._state.head()]
                self._send_lines(lines, joins=True, to=view)
                self.feed.send({"type": "status", "status": self._status, "to": view})

    def _forget(self) -> None:
        self._state = None
        self._last_id = ""

    def _last_seen(self) -> str | None:
        return self._last_id or None

    def _forward(self, batch: list[ServerSentEvent]) -> None:
        """Fold a batch and send it. Only the last of the lines with a current state has an id."""
        with self._lock:
            lines, is_numbered, dropped = self._unsent, False, 0
            for received in batch:
                if received.event == "status":
                    self._status = json.loads(received.data)
                elif received.event == "dropped":
                    dropped = json.loads(received.data)["dropped"]
                else:
                    event: AnyClusterEvent = _decode(received.data)
                    if isinstance(event, ClusterStarted):
                        lines, is_numbered, self._state = [], False, ClusterState()
                    assert self._state is not None, "a gateway's first event is cluster_started"
                    self._state.add(event)
                    lines.append(received.data)
                    # The decoder gives an event without an id that of the event before it.
                    if received.id and received.id != self._last_id:
                        self._last_id, is_numbered = received.id, True
            self._unsent = [] if is_numbered else lines
            if is_numbered:
                joins = _BEGINS.match(lines[0]) is not None
                self._send_lines(lines, joins=joins, dropped=dropped)
            if any(received.event == "status" for received in batch):
                self.feed.send({"type": "status", "status": self._status})

    def _send_lines(self, lines: list[str], *, joins: bool, dropped: int = 0, to: str = "") -> None:
        """Send events up to the newest to the view `to`, or to all views if it is empty."""
        run, _, number = self._last_id.partition(":")
        count = 1 if joins else len(lines)  # the lines of a current state share one number
        self.feed.send(
            {
                "type": "events",
                "run": run,
                "first": int(number) + 1 - count,
                "count": count,
                "text": "\n".join(lines) + "\n",
                "joins": joins,
                "dropped": dropped,
                "to": to,
            }
        )
