"""/events and /trace of a gateway, the cluster log, live and as a file; /regimes and /tour tell of it.

The stream is that of one server (`server/api/live.py`) with the cluster's events. A viewer first gets
the log's head: `cluster_started`, and for each replica that is present its `replica_joined` and a
keyframe. Only the last of these events has an id, so a viewer that is cut off before it starts over.
`status` events have the same fields as one server's, over all replicas, and `replicas`.
"""

import asyncio
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from engine.cluster.cluster_log import ClusterLog
from server.api.live import EVENTS, TRACE, Feed
from server.api.shared_answer import SharedAnswer
from server.api.tour import TOUR, told_apart
from server.core.event_log import json_lines
from server.gateway.follower import Follower
from server.gateway.gateway import Gateway
from server.http.access import may_control
from visualizer.reading.regimes import regimes_of_cluster


def routes(gateway: Gateway) -> APIRouter:
    """Return the routes /events, /trace, /regimes and /tour."""
    router = APIRouter(tags=["Event log"])

    @router.get("/trace", response_class=Response, responses=TRACE)
    async def get_trace() -> Response:
        """Return the most recent part of the cluster log as JSON Lines; `ClusterLog.load` reads it."""
        body = await asyncio.to_thread(json_lines, list(gateway.log))
        return Response(body, media_type="application/jsonl")

    limits = SharedAnswer[dict[str, Any]]()

    @router.get("/regimes")
    async def regimes() -> dict[str, Any]:
        """Return what limited each replica, in the most recent part of the cluster log."""

        async def compute() -> dict[str, Any]:
            log = ClusterLog()
            for event in list(gateway.log):
                log.append(event)
            return (await asyncio.to_thread(regimes_of_cluster, log)).as_dict()

        return await limits.get(compute)

    tell = SharedAnswer[bytes]()

    @router.get("/tour", response_class=Response, responses=TOUR)
    async def tour() -> Response:
        """Tell what happened in the most recent part of the cluster log, in a few scenes."""
        told = await tell.get(lambda: told_apart(list(gateway.log)))
        return Response(told, media_type="application/json")

    @router.get("/events", response_class=Response, responses=EVENTS)
    async def events(
        request: Request,
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
        past: Annotated[
            bool, Query(description="Begin with the oldest event that the gateway has kept.")
        ] = False,
    ) -> Response:
        """Stream the cluster log as server-sent events."""
        status = partial(_status, gateway, controls=may_control(request, gateway.settings))
        return Feed(gateway.settings, gateway.followed, status, last_event_id, past=past)

    return router


def _status(gateway: Gateway, *, controls: bool) -> dict[str, Any]:
    """Return the fields of the status event, over all replicas."""
    replicas = [_replica_status(follower) for follower in gateway.followers.values()]
    present = [f.status for f in gateway.followers.values() if f.status]
    first = present[0] if present else {}
    return {
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
        "controls": controls,
        "key": gateway.settings.api_key is not None,
        "trace_text": first.get("trace_text", "on"),
    }


def _replica_status(follower: Follower) -> dict[str, Any]:
    status, member = follower.status, follower.member
    return {
        "id": member.id,
        "url": member.url,
        "role": member.role,
        "ready": follower.ready,
        "not_ready": follower.problem[1],
        "paused": status.get("paused", False),
        "holding": status.get("holding", False),
    }
