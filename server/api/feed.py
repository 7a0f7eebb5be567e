"""The event log over HTTP: live as server-sent events, and as a file.

A live viewer joins with a keyframe, the whole folded state, and then gets every event; the SSE id is
the name of the run and the event's number, `5f0c9a1e:412`. Reconnecting viewers send the last one
back (`Last-Event-ID`) and go on from there; one of a run that is over, because the server was started
again, begins anew. Viewers have no queue of their own: each has a place in the window that all
share. One that falls behind the window is told how many events it missed and starts over with a
keyframe.

What is not in the log goes as an event named "status", first after the keyframe and again whenever it
changes: whether somebody holds the engine, and whether the server takes requests.
"""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.events.vocabulary import Event
from server.api.operation import may_control
from server.core.bridge import Bridge
from server.core.event_log import Window, encode_event
from server.core.models import Models, ViewedModel
from server.http.openapi import EVENT
from server.http.streaming import EVENT_STREAM_HEADERS, KEEP_ALIVE, Connection, sse

_TRACE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A JSON object per line. The first is a keyframe if older events are gone.",
        "content": {
            "application/jsonl": {
                "schema": {"type": "string"},
                "example": '{"type":"step_started","step":1}\n',
            }
        },
    }
}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events without end. The id is the run and the event's number.",
        "content": {
            "text/event-stream": {
                "itemSchema": EVENT,
                "example": 'id: 5f0c9a1e:412\ndata: {"type":"step_started","step":1}\n\n',
            }
        },
    }
}


def routes(models: Models) -> APIRouter:
    """/events and /trace over the loaded models."""
    router = APIRouter(tags=["Event log"])

    @router.get("/trace", response_class=Response, responses=_TRACE)
    async def get_trace(model: ViewedModel = None) -> Response:
        """The last part of the event log as JSON Lines; `EventLog.load` reads it."""
        body = await asyncio.to_thread(_json_lines, models.viewed(model).window.trace())
        return Response(body, media_type="application/jsonl")

    @router.get("/events", response_class=Response, responses=_EVENTS)
    async def events(
        request: Request,
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
        model: ViewedModel = None,
    ) -> Response:
        """The event log as it happens (server-sent events); the first event is a keyframe."""
        bridge = models.viewed(model)
        last_seen = _number_in(last_event_id, bridge.window.run)
        return Feed(bridge, last_seen, controls=may_control(request, bridge.settings.api_key))

    return router


class Feed(Response):
    """Live events.

    last_seen   number of the last event the viewer has, if it has any of this run
    controls    whether the viewer may hold the engine; it is told
    """

    def __init__(self, bridge: Bridge, last_seen: int | None, *, controls: bool) -> None:
        super().__init__()
        self._bridge = bridge
        self._last_seen = last_seen
        self._controls = controls

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the viewer leaves or the server stops."""
        connection = Connection(receive, send, self._bridge.settings.stall_seconds)
        sending = asyncio.create_task(self._send(connection))
        leaving = asyncio.create_task(connection.lost())
        stopping = asyncio.create_task(self._bridge.stopped.wait())
        tasks = {sending, leaving, stopping}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not sending.cancelled():
            sending.result()  # it failed: the request log says so, and the viewer connects again
        if stopping.done() and not stopping.cancelled():
            await connection.body(b"", more=False)

    async def _send(self, connection: Connection) -> None:
        window, patience = self._bridge.window, self._bridge.settings.keep_alive
        await connection.start(200, EVENT_STREAM_HEADERS)
        next_seq = -1 if self._last_seen is None else self._last_seen + 1
        data = status = b""
        while True:
            if not window.first_seq <= next_seq <= window.next_seq:
                data, next_seq = _join(window, next_seq), window.next_seq
            new = window.since(next_seq)
            data += _numbered(window.run, new, next_seq)
            next_seq += len(new)
            if (now := self._status()) != status:
                data, status = data + now, now
            if data:
                await connection.body(data)
            elif not await window.changed(patience):
                await connection.body(KEEP_ALIVE)
            data = b""

    def _status(self) -> bytes:
        bridge = self._bridge
        return b"event: status\n" + sse(
            {
                "run": bridge.window.run,
                "model": bridge.settings.model_name,
                "paused": bridge.paused,
                "not_ready": bridge.not_ready,
                "controls": self._controls,
            }
        )


def _number_in(last_event_id: str | None, run: str) -> int | None:
    """The number in the id of an event of this run; None for anything else."""
    name, _, number = (last_event_id or "").partition(":")
    return int(number) if name == run and number.isdecimal() and len(number) < 16 else None


def _json_lines(events: Iterable[Event]) -> bytes:
    """A log as a file."""
    return b"".join(encode_event(event) + b"\n" for event in events)


def _join(window: Window, next_seq: int) -> bytes:
    """Where a viewer starts, or starts over: what it missed, then the state as of now."""
    data = b""
    if 0 <= next_seq < window.first_seq:
        missed = window.next_seq - next_seq
        data = b'event: dropped\ndata: {"dropped": %d}\n\n' % missed
    return data + _numbered(window.run, [window.state.keyframe()], window.next_seq - 1)


def _numbered(run: str, events: list[Event], first: int) -> bytes:
    return b"".join(
        b"id: %b:%d\ndata: %b\n\n" % (run.encode(), seq, encode_event(event))
        for seq, event in enumerate(events, start=first)
    )
