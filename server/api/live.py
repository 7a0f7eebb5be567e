"""The live page at `/`, and its event log: /events streams the log, /trace returns it as a file.
/regimes says what limited the run.

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
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakKeyDictionary

import msgspec
from fastapi import APIRouter, FastAPI, Header, Query, Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from engine.core.config import EngineConfig
from engine.core.declared import Setting, settings_of
from engine.core.log.log import EventLog
from server.api.shared_answer import SharedAnswer
from server.core.bridge import Bridge
from server.core.event_log import PreviousRun, Window, encode_event, json_lines
from server.core.models import Models, ViewedModel
from server.core.run_until import Stopped
from server.core.settings import ServerSettings
from server.http.access import may_control
from server.http.errors import ApiError
from server.http.streaming import EVENT, EVENT_STREAM_HEADERS, KEEP_ALIVE, Connection, sse
from visualizer.front_end import MODULES, built
from visualizer.reading.regimes import regimes_of

if TYPE_CHECKING:
    from server.gateway.gateway import ClusterWindow

PAGES = Path(__file__).parents[1] / "pages"
# The page of a gateway is that of one server without the parts that are about one engine.
_ONE_ENGINE = re.compile(r"<!-- one engine -->\n.*?<!-- end -->\n", re.DOTALL)
_OF_GATEWAY = {
    "<title>Underglass<": "<title>Underglass: replicas<",
    "live_page.js": "gateway_page.js",
    'aria-label="Engine"': 'aria-label="All replicas"',
    "what the engine does with it": "which replica answers it",
}

# The page loads nothing from other sites, even if a prompt contains HTML, and other sites cannot
# frame it. Inline styles are allowed because the board brings its own style.
_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self'; "
    "style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A gateway asks its replicas for a sign of life so often, in seconds: it ejects one that is silent.
BEAT_HEADER = "x-underglass-beat"
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


def install_page(app: FastAPI, *, of_gateway: bool = False) -> None:
    """Serve the live page at `/`, and its files below `/page/` and `/board/`."""
    text = (PAGES / "live.html").read_text("utf-8")
    if of_gateway:
        text = _ONE_ENGINE.sub("", text)
        for words, instead in _OF_GATEWAY.items():
            text = text.replace(words, instead)
    fields = "".join(map(_field, settings_of(EngineConfig)))
    text = text.replace("<!-- settings -->", fields)
    built(f"modules/{'gateway' if of_gateway else 'live'}_page.js")
    app.mount("/page", _Files(directory=PAGES))
    app.mount("/board", _Files(directory=MODULES))

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        headers = {**_HEADERS, "Content-Security-Policy": _POLICY}
        return HTMLResponse(text, headers=headers)


def _field(setting: Setting) -> str:
    """Return a setting's field in the form that restarts the engine."""
    if setting.kind in (int, float):
        bounds = f'min="{setting.ge:g}" step="{"1" if setting.kind is int else "any"}"'
        field = f'<input name="{setting.name}" type="number" {bounds} required>'
    else:
        options = "".join(f"<option>{one}" for one in setting.choices or ("on", "off"))
        field = f'<select name="{setting.name}">{options}</select>'
    label = setting.name.replace("_", " ")
    return f'<label title="{html.escape(setting.help)}">{label} {field}</label>'


def routes(models: Models) -> APIRouter:
    """Return the routes /events, /trace and /regimes for the loaded models."""
    router = APIRouter(tags=["Event log"])
    limits = WeakKeyDictionary[Any, SharedAnswer[dict[str, Any]]]()  # of each model's engine

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

    @router.get("/regimes")
    async def regimes(model: ViewedModel = None) -> dict[str, Any]:
        """Return what limited the run, in the most recent part of the event log: see `Regimes`."""
        bridge = models.viewed(model)

        async def compute() -> dict[str, Any]:
            log = EventLog.from_events(bridge.window.trace())
            return (await asyncio.to_thread(regimes_of, log)).as_dict()

        return await limits.setdefault(bridge, SharedAnswer()).get(compute)

    @router.get("/events", response_class=Response, responses=EVENTS)
    async def events(
        request: Request,
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
        model: ViewedModel = None,
        past: Annotated[
            bool, Query(description="Begin with the oldest event that the server still has.")
        ] = False,
        beat: Annotated[
            float | None, Header(alias=BEAT_HEADER, ge=0.01, include_in_schema=False)
        ] = None,
    ) -> Response:
        """Stream the event log as server-sent events.

        The first event is a keyframe; with `past`, it may also be the run's first event.
        """
        bridge = models.viewed(model)
        controls = may_control(request, bridge.settings)
        return _feed(bridge, last_event_id, past=past, controls=controls, beat=beat)

    return router


class Feed(Response):
    """A live stream of the event log of a server, or of the cluster log of a gateway.

    log             returns the log, which a restart of the engine replaces; None ends the stream
    status          returns the fields of the status event
    last_event_id   the id of the last event that the viewer received, or None
    past            whether a viewer that has received no event starts with the oldest event kept
    beat            how many seconds pass without a sign of life; None is the server's setting
    """

    def __init__(
        self,
        settings: ServerSettings,
        log: "Callable[[], Window | ClusterWindow | None]",
        status: Callable[[], dict[str, Any]],
        last_event_id: str | None = None,
        *,
        past: bool = False,
        beat: float | None = None,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._beat = settings.keep_alive if beat is None else beat
        self._log = log
        self._status = status
        self._last_event_id = last_event_id
        self._past = past

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the viewer disconnects or the server stops."""
        connection = Connection(receive, send, self._settings.stall_seconds)
        await connection.serve(self._send(connection))

    async def _send(self, connection: Connection) -> None:
        await connection.start(200, EVENT_STREAM_HEADERS)
        run, next_seq, from_oldest, status = "", -1, self._past, b""
        while (log := self._log()) is not None:
            if run != log.run:
                if run:  # the engine was restarted
                    next_seq, from_oldest = -1, True
                else:
                    next_seq = _seq_after(self._last_event_id, log.run)
                run = log.run
            data = b""
            if not log.first_seq <= next_seq <= log.next_seq:
                if 0 <= next_seq < log.first_seq:
                    missed = log.next_seq - next_seq
                    data = b'event: dropped\ndata: {"dropped": %d}\n\n' % missed
                    from_oldest = False
                head = log.head() if from_oldest else log.keyframes()
                next_seq = log.first_seq if from_oldest else log.next_seq
                data += _lines(run, head[:-1]) + _lines(run, head[-1:], next_seq - 1)
            new = log.since(next_seq)[:PIECE]
            data += _lines(run, new, next_seq)
            next_seq += len(new)
            if next_seq == log.next_seq and (now := sse(self._status())) != status:
                data, status = data + b"event: status\n" + now, now
            if data:
                await connection.body(data)
                await asyncio.sleep(0)  # other streams are served between two pieces
            elif not await log.changed(self._beat):
                await connection.body(KEEP_ALIVE)
        await connection.body(b"", more=False)


def _feed(
    bridge: Bridge, last_event_id: str | None, *, past: bool, controls: bool, beat: float | None
) -> Feed:
    """Return the stream of an engine's log, and of those of the engines that replace it."""

    def log() -> Window | None:
        nonlocal bridge
        while bridge.successor is not None:
            bridge = bridge.successor
        return None if bridge.stopped else bridge.window

    def status() -> dict[str, Any]:
        return {
            "run": bridge.window.run,
            "model": bridge.settings.model_name,
            "chats": bridge.tokenizer.chat_template.exists,
            "paused": bridge.paused,
            "until": bridge.until,
            "stopped": _stopped(bridge.classroom.last_stop),
            "holding": bridge.classroom.holding,
            "held": bridge.classroom.held,
            "screen": bridge.classroom.screen,
            "not_ready": bridge.not_ready,
            "trace_error": bridge.trace_error,
            "previous": _previous(bridge.previous),
            "controls": controls,
            "key": bridge.settings.api_key is not None,
            "trace_text": bridge.settings.trace_text,
        }

    return Feed(bridge.settings, log, status, last_event_id, past=past, beat=beat)


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


def _seq_after(last_event_id: str | None, run: str) -> int:
    """Return the number of the event after this one; -1 if it is none of this run's."""
    name, _, number = (last_event_id or "").partition(":")
    return int(number) + 1 if name == run and number.isdecimal() and len(number) < 16 else -1


def _lines(run: str, events: Iterable[msgspec.Struct], first: int | None = None) -> bytes:
    """Encode events; those whose numbers begin with `first` get ids.

    A viewer that is cut off before it has received an id starts over.
    """
    if first is None:
        return b"".join([b"data: %b\n\n" % encode_event(event) for event in events])
    return b"".join(
        b"id: %b:%d\ndata: %b\n\n" % (run.encode(), seq, encode_event(event))
        for seq, event in enumerate(events, start=first)
    )
