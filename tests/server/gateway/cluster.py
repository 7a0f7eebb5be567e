"""A gateway process over real servers, and a viewer of its feed."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from engine.cluster.cluster_log import ClusterLog
from engine.cluster.events import AnyClusterEvent
from server.core.settings import ServerSettings
from server.gateway.gateway import Gateway
from server.gateway.replica_set import Member
from server.process import BackgroundServer
from tests.server.harness import EventStream, ForkedServer, fetch


def start_gateway(*urls: str, key: str | None = None, **options: object) -> BackgroundServer:
    """`underglass serve --replica URL ...`; `key` is the cluster's."""
    command = ["serve", "--port", "0", "--until-stdin-closes", "--request-log", "off"]
    for url in urls:
        command += ["--replica", url]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    # As in a cluster, the key is not on the command line, where other users could read it.
    variables = {} if key is None else {"UNDERGLASS_CLUSTER_KEY": key}
    return ForkedServer("underglass.commands", *command, **variables)


class ClusterFeed(EventStream):
    """A viewer of a gateway's /events."""

    _decoder = msgspec.json.Decoder(AnyClusterEvent)

    def __init__(self, url: str, *arguments: Any, **options: Any) -> None:
        super().__init__(url, *arguments, **options)
        self.ids: list[str] = []

    def _take(self, event: AnyClusterEvent, number: str) -> None:
        self.ids.append(number)

    def until_ready(self, *ids: str) -> None:
        """Read on until exactly these replicas accept requests."""
        self.until_replicas("ready", *ids)

    def until_replicas(self, what: str, *ids: str) -> None:
        """Read on until exactly these replicas are ready, paused or holding, as `what` says."""
        while {one["id"] for one in self.status.get("replicas", ()) if one[what]} != set(ids):
            next(self._read())


class Announced:
    """A replica set whose members come and go as a test says."""

    desired, since, ray = 0, datetime.now(UTC), None

    async def start(
        self, add: Callable[[Member], None], remove: Callable[[str, str], None]
    ) -> None:
        self.add, self.remove = add, remove

    async def stop(self) -> None:
        del self.add, self.remove


def cluster_trace(url: str) -> ClusterLog:
    return ClusterLog.from_bytes(fetch(url, "/trace").content)


async def until_in(gateway: Gateway, wanted: Callable[[], object]) -> None:
    """Wait until the log has changed so that `wanted` is true."""
    while not wanted():
        assert await gateway.log.changed(60)


@asynccontextmanager
async def started(members: Any, **options: Any) -> AsyncIterator[Gateway]:
    """A gateway in this process; `options` are its own."""
    settings = ServerSettings(cluster_key=options.pop("cluster_key", None))
    gateway = Gateway(members, "random", settings, **options)
    gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


def happened(gateway: Gateway, kind: type) -> list[Any]:
    return [event for event in gateway.log if isinstance(event, kind)]
