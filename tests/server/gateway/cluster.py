"""A gateway process over real servers, and a viewer of its feed."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from httpx_sse import EventSource

from engine.events.cluster import AnyClusterEvent
from engine.events.cluster_log import ClusterLog
from server.process import BackgroundServer
from tests.server.harness import ForkedServer, http


def start_gateway(*urls: str, key: str | None = None, **options: object) -> BackgroundServer:
    """`underglass serve --replica URL ...`; `key` is the cluster's."""
    command = ["serve", "--port", "0", "--until-stdin-closes", "--request-log", "off"]
    for url in urls:
        command += ["--replica", url]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    # As in a cluster, the key is not on the command line, where other users could read it.
    variables = {} if key is None else {"UNDERGLASS_CLUSTER_KEY": key}
    return ForkedServer("server.cli", *command, **variables)


class ClusterFeed:
    """A viewer of a gateway's /events. Used with `with`; iterating yields what it receives."""

    _decoder = msgspec.json.Decoder(AnyClusterEvent)

    def __init__(self, url: str, last_event_id: str | None = None, *, past: bool = False) -> None:
        self._client = http(url)
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        params = {"past": "true"} if past else {}
        self._stream = self._client.stream("GET", "/events", headers=headers, params=params)
        self.events: list[AnyClusterEvent] = []
        self.ids: list[str] = []
        self.status: dict[str, Any] = {}

    def __enter__(self) -> "ClusterFeed":
        self._sent = EventSource(self._stream.__enter__()).iter_sse()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stream.__exit__(*error)
        self._client.close()

    def __iter__(self) -> Iterator[AnyClusterEvent | None]:
        """Yield the events, and None for each new status."""
        for sent in self._sent:
            if not sent.data:  # httpx-sse also yields an event for a comment, the keep-alive
                continue
            if sent.event == "status":
                self.status = sent.json()
                yield None
            elif sent.event == "message":
                event = self._decoder.decode(sent.data)
                self.events.append(event)
                self.ids.append(sent.id)
                yield event

    def until(self, wanted: Callable[[Any], bool]) -> Any:
        """Read on until an event matches; return it."""
        return next(event for event in self if event is not None and wanted(event))

    def until_ready(self, *ids: str) -> None:
        """Read on until exactly these replicas accept requests."""
        while {one["id"] for one in self.status.get("replicas", ()) if one["ready"]} != set(ids):
            next(iter(self))

    def until_not_ready(self) -> str:
        """Read on until the gateway accepts no requests; return the reason."""
        while not self.status.get("not_ready"):
            next(iter(self))
        reason: str = self.status["not_ready"]
        return reason


def cluster_trace(url: str) -> ClusterLog:
    with http(url) as client:
        return ClusterLog.from_bytes(client.get("/trace").content)
