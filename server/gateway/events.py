"""/events and /trace of a gateway: the cluster log, live and as a file.

The stream is that of one server (`server/api/live.py`) with the cluster's events. A viewer first gets
the log's head: `cluster_started`, and for each replica that is present its `replica_joined` and a
keyframe. Only the last of these events has an id, so a viewer that is cut off before it starts over.
`status` events have the same fields as one server's, over all replicas, and `replicas`.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.cluster.events import AnyClusterEvent
from server.api.live import EVENTS, PIECE, TRACE, number_in
from server.api.operation import may_control
from server.core.event_log import encode_event
from server.gateway.follower import Follower
from server.gateway.gateway import Gateway
from server.http.streaming import EVENT_STREAM_HEADERS, KEEP_ALIVE, Connection, sse


def routes(gateway: Gateway) -> APIRouter:
    """Return the routes /events and /trace."""
    router = APIRouter(tags=["Event log"])

    @router.get("/trace", response_class=Response, responses=TRACE)
    async def get_trace() -> Response:
        """Return the most recent part of the cluster log as JSON Lines; `ClusterLog.load` reads it."""
        events = list(gateway.log)
        body = await asyncio.to_thread(
            lambda: b"".join(encode_event(event) + b"\n" for event in events)
        )
        return Response(body, media_type="application/jsonl")

    @router.get("/events", response_class=Response, responses=EVENTS)
    async def events(
        request: Request,
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
        past: Annotated[
            bool, Query(description="Begin with the oldest event that the gateway has kept.")
        ] = False,
    ) -> Response:
        """Stream the cluster log as server-sent events."""
        last_seen = number_in(last_event_id, gateway.log.run)
        controls = may_control(request, gateway.settings)
        return ClusterFeed(gateway, last_seen, past=past, controls=controls)

    return router


class ClusterFeed(Response):
    """A stream of the cluster log's events; the arguments are those of `Feed` in server/api/live.py."""

    def __init__(
        self, gateway: Gateway, last_seen: int | None, *, past: bool, controls: bool
    ) -> None:
        super().__init__()
        self._gateway = gateway
        self._next_seq = None if last_seen is None else last_seen + 1
        self._past = past
        self._controls = controls

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the viewer disconnects or the gateway stops."""
        connection = Connection(receive, send, self._gateway.settings.stall_seconds)
        await connection.serve(self._send(connection))

    async def _send(self, connection: Connection) -> None:
        gateway = self._gateway
        log, patience = gateway.log, gateway.settings.keep_alive
        await connection.start(200, EVENT_STREAM_HEADERS)
        next_seq = -1 if self._next_seq is None else self._next_seq
        if self._past and self._next_seq is None:
            await connection.body(_lines(log.head()))
            next_seq = log.first_seq
        status = b""
        while not gateway.stopped.is_set():
            data = b""
            if not log.first_seq <= next_seq <= log.next_seq:
                if 0 <= next_seq < log.first_seq:
                    missed = log.next_seq - next_seq
                    data = b'event: dropped\ndata: {"dropped": %d}\n\n' % missed
                next_seq = log.next_seq
                data += _lines(log.state.head(), b"id: %b:%d\n" % (log.run.encode(), next_seq - 1))
            new = log.since(next_seq)[:PIECE]
            data += b"".join(
                b"id: %b:%d\ndata: %b\n\n" % (log.run.encode(), seq, encode_event(event))
                for seq, event in enumerate(new, start=next_seq)
            )
            next_seq += len(new)
            if next_seq == log.next_seq and (now := self._status()) != status:
                data, status = data + now, now
            if data:
                await connection.body(data)
                await asyncio.sleep(0)  # other streams wait while a piece is encoded
            elif not await log.changed(patience):
                await connection.body(KEEP_ALIVE)
        await connection.body(b"", more=False)

    def _status(self) -> bytes:
        gateway = self._gateway
        replicas = [_replica_status(follower) for follower in gateway.followers.values()]
        present = [f.status for f in gateway.followers.values() if f.status]
        first = present[0] if present else {}
        return b"event: status\n" + sse(
            {
                "run": gateway.log.run,
                "router": gateway.router_name,
                "replicas": replicas,
                "model": first.get("model", ""),
                "chats": first.get("chats", False),
                "paused": bool(present) and all(one["paused"] for one in present),
                "until": first.get("until", ""),
                "stopped": None,
                "holding": any(one["holding"] for one in present),
                "held": [label for one in present for label in one["held"]],
                "screen": None,
                "not_ready": gateway.not_ready,
                "trace_error": gateway.trace_error,
                "previous": None,
                "controls": self._controls,
                "key": gateway.settings.api_key is not None,
                "trace_text": first.get("trace_text", "on"),
            }
        )


def _replica_status(follower: Follower) -> dict[str, Any]:
    status, member = follower.status, follower.member
    return {
        "id": member.id,
        "url": member.url,
        "role": member.role,
        "ready": follower.ready,
        "not_ready": status.get("not_ready", "" if follower.joined else "it cannot be reached"),
        "paused": status.get("paused", False),
        "holding": status.get("holding", False),
    }


def _lines(events: Sequence[AnyClusterEvent], last_id: bytes = b"") -> bytes:
    """Encode the events of a head; only the last one has an id."""
    data = [b"data: %b\n\n" % encode_event(event) for event in events]
    return b"".join([*data[:-1], last_id, *data[-1:]])
