"""The live page at `/`, and its event log: /events streams the log, /trace returns it as a file.

The server serves all files of the page itself, so the page works offline:

    server/pages/            layout, style, scripts of the prompt box and the teacher's buttons
    visualizer/static/       the scripts, bundled with the board that draws pictures in notebooks

The files contain no user data and need no key. If the server has a key, the page asks the user for it
and sends it with its other requests.

A live viewer first gets a keyframe, which is the whole folded state, and then every event. With `past`,
it gets the window of recent events instead of the keyframe, so that a page that is opened late shows
the same history as the pages opened before it. The SSE id is the run's name followed by the event's
number, as in `5f0c9a1e:412`. A viewer that reconnects sends its last id back (`Last-Event-ID`) and
continues after that event. If the server has restarted since then, the run has a new name and the
viewer starts over. If only the engine is restarted, the same stream continues with the new run's first
event. Viewers have no queues: each has a position in one shared window of recent events. A viewer that
falls behind the window is told how many events it missed and gets a new keyframe.

The log does not say which requests the teacher's controls hold back, or whether the server accepts
requests. An SSE event named "status" does: it is sent after the first keyframe and whenever one of its
fields changes.
"""

import asyncio
import gzip
import html
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, Query, Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from engine.core.config import EngineConfig
from engine.core.declared import Setting, settings_of
from engine.core.extras import MissingExtraError
from engine.core.log.vocabulary import Event
from server.api.operation import may_control
from server.core.bridge import Bridge
from server.core.event_log import PreviousRun, Window, encode_event
from server.core.models import Models, ViewedModel
from server.core.run_until import Stopped
from server.http.errors import ApiError
from server.http.streaming import EVENT, EVENT_STREAM_HEADERS, KEEP_ALIVE, Connection, sse

PAGES = Path(__file__).parents[1] / "pages"
BOARD = Path(__file__).parents[2] / "visualizer" / "static"

# The page loads nothing from other sites, even if a prompt contains HTML, and other sites cannot
# frame it. Inline styles are allowed because the board brings its own style.
_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self'; "
    "style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Number of events that are encoded without a break, which takes about 2 ms.
PIECE = 1000
# Browsers revalidate the files on every load, so they never show an old page for a new server.
_HEADERS = {"Cache-Control": "no-cache"}

TRACE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One JSON object per line. The first is a keyframe if older events are gone.",
        "content": {
            "application/jsonl": {
                "schema": {"type": "string"},
                "example": '{"type":"step_started","step":1}\n',
            }
        },
    }
}
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "An endless event stream. An id is the run's name and the event's number.",
        "content": {
            "text/event-stream": {
                "itemSchema": EVENT,
                "example": 'id: 5f0c9a1e:412\ndata: {"type":"step_started","step":1}\n\n',
            }
        },
    }
}


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


def install_page(app: FastAPI, name: str = "live.html") -> None:
    """Serve a page of `server/pages/` at `/`, and its files below `/page/` and `/board/`."""
    if not (BOARD / "live_page.js").exists():
        raise MissingExtraError(
            "the live page needs visualizer/static/live_page.js, which a clone does not contain: "
            "build it with `make setup`"
        )
    app.mount("/page", _Files(directory=PAGES))
    app.mount("/board", _Files(directory=BOARD))

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        headers = {**_HEADERS, "Content-Security-Policy": _POLICY}
        text = (PAGES / name).read_text("utf-8")
        fields = "".join(map(_field, settings_of(EngineConfig)))
        return HTMLResponse(text.replace("<!-- settings -->", fields), headers=headers)


def _field(setting: Setting) -> str:
    """Return a setting's field in the form that restarts the engine."""
    if setting.kind is int:
        field = f'<input name="{setting.name}" type="number" min="1" step="1" required>'
    else:
        options = "".join(f"<option>{one}" for one in setting.choices or ("on", "off"))
        field = f'<select name="{setting.name}">{options}</select>'
    label = setting.name.replace("_", " ")
    return f'<label title="{html.escape(setting.help)}">{label} {field}</label>'


def routes(models: Models) -> APIRouter:
    """Return the routes /events and /trace for the loaded models."""
    router = APIRouter(tags=["Event log"])

    @router.get("/trace", response_class=Response, responses=TRACE)
    async def get_trace(
        model: ViewedModel = None,
        previous: Annotated[
            bool, Query(description="The log of the run before the last /engine/restart.")
        ] = False,
    ) -> Response:
        """Return the most recent part of the event log as JSON Lines; `EventLog.load` reads it."""
        bridge = models.viewed(model)
        if previous:
            log = previous_run(bridge).log
            body = await asyncio.to_thread(gzip.decompress, log)
        else:
            body = await asyncio.to_thread(json_lines, bridge.window.trace())
        return Response(body, media_type="application/jsonl")

    @router.get("/events", response_class=Response, responses=EVENTS)
    async def events(
        request: Request,
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
        model: ViewedModel = None,
        past: Annotated[
            bool, Query(description="Begin with the oldest event that the server still has.")
        ] = False,
    ) -> Response:
        """Stream the event log as server-sent events.

        The first event is a keyframe; with `past`, it may also be the run's first event.
        """
        bridge = models.viewed(model)
        last_seen = number_in(last_event_id, bridge.window.run)
        controls = may_control(request, bridge.settings)
        return Feed(bridge, last_seen, past=past, controls=controls)

    return router


class Feed(Response):
    """A stream of live events.

    last_seen   number of the last event of this run that the viewer received, or None
    past        whether a viewer that has received no event starts with the window's oldest event
    controls    whether the viewer may pause the engine; part of the status event
    """

    def __init__(
        self, bridge: Bridge, last_seen: int | None, *, past: bool = False, controls: bool
    ) -> None:
        super().__init__()
        self._bridge = bridge
        self._last_seen = last_seen
        self._past = past
        self._controls = controls

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the viewer disconnects or the server stops."""
        connection = Connection(receive, send, self._bridge.settings.stall_seconds)
        sending = asyncio.create_task(self._send(connection))
        disconnected = asyncio.create_task(connection.lost())
        stopping = asyncio.create_task(self._stopped())
        tasks = {sending, disconnected, stopping}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not sending.cancelled():
            sending.result()  # raises, so the error is logged; the viewer reconnects
        if stopping.done() and not stopping.cancelled():
            await connection.body(b"", more=False)

    async def _stopped(self) -> None:
        """Wait until the server stops. A restart of the engine replaces the bridge."""
        bridge: Bridge | None = self._bridge
        while bridge is not None:
            await bridge.stopped.wait()
            bridge = bridge.successor

    async def _send(self, connection: Connection) -> None:
        window, patience = self._bridge.window, self._bridge.settings.keep_alive
        await connection.start(200, EVENT_STREAM_HEADERS)
        next_seq = -1 if self._last_seen is None else self._last_seen + 1
        if self._past and self._last_seen is None:
            next_seq = await self._send_past(connection)
        data = status = b""
        while True:
            if self._bridge.successor is not None:
                self._bridge = self._bridge.successor
                window = self._bridge.window
                next_seq = await self._send_past(connection)
            if not window.first_seq <= next_seq <= window.next_seq:
                data, next_seq = _keyframe(window, next_seq), window.next_seq
            new = window.since(next_seq)
            data += _with_ids(window.run, new, next_seq)
            next_seq += len(new)
            if (now := self._status()) != status:
                data, status = data + now, now
            if data:
                await connection.body(data)
            elif self._bridge.successor is None and not await window.changed(patience):
                await connection.body(KEEP_ALIVE)
            data = b""

    async def _send_past(self, connection: Connection) -> int:
        """Send the window; return the number of the next event.

        The window is encoded in pieces so that other streams are served in between.
        """
        window = self._bridge.window
        events, next_seq = window.trace(), window.next_seq
        first = next_seq - len(events)
        for start in range(0, len(events), PIECE):
            piece = events[start : start + PIECE]
            await connection.body(_with_ids(window.run, piece, first + start))
            await asyncio.sleep(0)
        return next_seq

    def _status(self) -> bytes:
        bridge, room = self._bridge, self._bridge.classroom
        return b"event: status\n" + sse(
            {
                "run": bridge.window.run,
                "model": bridge.settings.model_name,
                "chats": bridge.tokenizer.chat_template.exists,
                "paused": bridge.paused,
                "until": bridge.until,
                "stopped": _stopped(room.last_stop),
                "holding": room.holding,
                "held": room.held,
                "screen": room.screen,
                "not_ready": bridge.not_ready,
                "trace_error": bridge.trace_error,
                "previous": _previous(bridge.previous),
                "controls": self._controls,
                "key": bridge.settings.api_key is not None,
                "trace_text": bridge.settings.trace_text,
            }
        )


def _stopped(stop: Stopped | None) -> dict[str, Any] | None:
    if stop is None:
        return None
    return {"step": stop.step, "reason": stop.reason, "request": stop.request}


def _previous(run: PreviousRun | None) -> dict[str, Any] | None:
    if run is None:
        return None
    return {"run": run.run, "changed": run.changed, "prompts": run.prompts}


def previous_run(bridge: Bridge) -> PreviousRun:
    """Return the run before the last restart. Raises ApiError if there was none."""
    if bridge.previous is None:
        raise ApiError(
            404,
            "there is no previous run: POST /engine/restart ends a run and keeps its log",
            code="no_previous_run",
        )
    return bridge.previous


def number_in(last_event_id: str | None, run: str) -> int | None:
    """Return the event's number if `last_event_id` is an id of this run; otherwise None."""
    name, _, number = (last_event_id or "").partition(":")
    return int(number) if name == run and number.isdecimal() and len(number) < 16 else None


def json_lines(events: Iterable[Event]) -> bytes:
    """Encode events as JSON Lines."""
    return b"".join(encode_event(event) + b"\n" for event in events)


def _keyframe(window: Window, next_seq: int) -> bytes:
    """Encode a keyframe, preceded by the number of missed events if the viewer fell behind."""
    data = b""
    if 0 <= next_seq < window.first_seq:
        missed = window.next_seq - next_seq
        data = b'event: dropped\ndata: {"dropped": %d}\n\n' % missed
    return data + _with_ids(window.run, [window.state.keyframe()], window.next_seq - 1)


def _with_ids(run: str, events: list[Event], first: int) -> bytes:
    return b"".join(
        b"id: %b:%d\ndata: %b\n\n" % (run.encode(), seq, encode_event(event))
        for seq, event in enumerate(events, start=first)
    )
