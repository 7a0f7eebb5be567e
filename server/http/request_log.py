"""The request log: one line per finished request, and the request id that client and server share.

    {"time": "2026-01-31T09:30:00.123Z", "id": "7d0f...", "from": "192.168.1.7", "method": "POST",
     "route": "/v1/completions", "status": 200, "duration_ms": 412.5, "label": "Ada", "requests": [17],
     "prompt_tokens": 5, "cached_tokens": 0, "output_tokens": 50, "ttft_ms": 9.1, "finish": ["stop"]}

Each line is ASCII-only JSON, so client input cannot end a line, colour the terminal or imitate another
line. Prompts and outputs are never logged. `requests` lists the ids in the event log.

`RequestLog` gives every request a `RequestContext` in `request.state.context`. Routes pass the context
on to `Bridge.generate`, which reports each finished stream to it. A gateway, which has no streams, puts
the fields of its line into `request.state.logged`.
"""

import io
import json
import logging
import queue
import re
import sys
import threading
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from logging.handlers import QueueListener
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.core.event_log import open_log
from server.core.request_stream import RequestContext, RequestStream
from server.core.settings import MAX_NAME_LENGTH
from server.http.access import PAGE_FOLDERS
from server.http.errors import internal_error

logger = logging.getLogger("underglass")

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
# Monitors and pages fetch these paths repeatedly; such requests are logged only if they fail.
_ROUTINE = frozenset({"/health", "/ready", "/ping", "/load", "/metrics", "/"})
_CLIENT_LEFT = 499  # nginx's status when the client disconnects before the response
_MAX_UNWRITTEN = 10_000


class LogWriter:
    """Writes lines to a file or to standard error, on its own thread.

    If standard error is a pipe that nothing reads, only that thread blocks, not the server. When too
    many lines are waiting, new ones are dropped and counted.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Append to the file `path`, or write to standard error if it is None. Raises OSError."""
        file = None if path is None else open_log(path, append=True)
        stream = sys.stderr if file is None else io.TextIOWrapper(file, "ascii", write_through=True)
        self._lines: queue.Queue[logging.LogRecord] = queue.Queue(_MAX_UNWRITTEN)
        self._listener = QueueListener(self._lines, _LineHandler(stream))
        self._listener.start()
        self._dropped = 0

    def put(self, line: dict[str, Any]) -> None:
        """Log a line without waiting."""
        if self._dropped:
            line["lines_left_out"] = self._dropped
        try:
            self._lines.put_nowait(logging.makeLogRecord({"msg": json.dumps(line)}))
            self._dropped = 0
        except queue.Full:
            self._dropped += 1

    def close(self, timeout: float = 1.0) -> None:
        """Write the remaining lines, but stop waiting after `timeout` seconds."""
        closing = threading.Thread(target=self._stop, daemon=True)  # `stop` has no timeout
        closing.start()
        closing.join(timeout)

    def _stop(self) -> None:
        with suppress(queue.Full):
            self._listener.stop()


class _LineHandler(logging.StreamHandler[Any]):
    """Stops logging at the first error, such as a full disk, and reports it once."""

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        logger.error("The request log ends here, but the server keeps running: %s", error)
        self.addFilter(lambda _record: False)


class RequestLog:
    """Middleware that assigns a request id, logs a line and turns unexpected errors into 500.

    The id is the client's `X-Request-Id` if it has only plain characters; otherwise a new one is
    generated. A WebSocket gets one line per stream.
    """

    def __init__(self, app: ASGIApp, writer: LogWriter | None, *, labels: bool) -> None:
        """Log to `writer`, if there is one; `labels` says whether lines have the requests' labels."""
        self._app = app
        self._writer = writer
        self._labels = labels

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and log it."""
        if scope["type"] == "websocket":
            self._add_context_of_websocket(scope)
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        request_id = _request_id(scope)
        streamed: dict[str, Any] = {}
        status = 0
        context = RequestContext(
            lambda stream: streamed.update(_stream_fields(stream, self._labels)), _address(scope)
        )
        scope.setdefault("state", {}).update(context=context, request_id=request_id)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            logger.exception("request %s failed", request_id.decode())
            if status:
                raise  # uvicorn closes the connection, so the client sees a truncated response
            await internal_error(error).response()(scope, receive, send_with_id)
        finally:
            if self._writer is not None and not _is_routine(scope, status):
                line = _request_fields(scope, request_id) | {
                    "status": status or _CLIENT_LEFT,
                    "duration_ms": round((time.monotonic() - began) * 1000, 3),
                }
                self._writer.put(line | streamed | scope["state"].get("logged", {}))

    def _add_context_of_websocket(self, scope: Scope) -> None:
        request_id, writer = _request_id(scope), self._writer

        def log_stream(stream: RequestStream) -> None:
            if writer is not None:
                writer.put(
                    _request_fields(scope, request_id) | _stream_fields(stream, self._labels)
                )

        scope.setdefault("state", {})["context"] = RequestContext(log_stream, _address(scope))


def label_in(header: str) -> str:
    """Return the label in a header or in the query of a URL.

    A label comes from the body (`user`), a header (`X-Client`) or the URL (`?client=`). Over HTTP the
    header wins, because client libraries set `user` on their own. Over LMTP the call's `user` wins,
    because the header and the URL apply to the whole connection.

    Servers decode headers as Latin-1, but shells and most clients send UTF-8, so "ZoÃ«" stands for Zoë.
    Other bytes are left unchanged. A header cannot be rejected like a field, so a long label is
    truncated.
    """
    try:
        label = header.encode("latin-1").decode()
    except UnicodeError:
        label = header
    return label[:MAX_NAME_LENGTH]


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _request_id(scope: Scope) -> bytes:
    sent = dict(scope["headers"]).get(b"x-request-id", b"")
    return sent if _SANE_ID.fullmatch(sent) else uuid.uuid4().hex.encode()


def _is_routine(scope: Scope, status: int) -> bool:
    path = scope["path"]
    return 0 < status < 400 and (path in _ROUTINE or path.startswith(PAGE_FOLDERS))


def _request_fields(scope: Scope, request_id: bytes) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {
        "time": now.removesuffix("+00:00") + "Z",
        "id": request_id.decode(),
        "from": _address(scope),
        "method": scope.get("method", "WebSocket"),
        "route": scope["path"][:200],
    }


def _stream_fields(stream: RequestStream, labels: bool) -> dict[str, Any]:
    """Return the log line's fields about the request in the engine, with its label or without it."""
    choices = sum(prompt.params.samples for prompt in stream.prompts)
    reasons = stream.finish_reasons
    first = stream.first_at
    return {
        "label": stream.label[:100] if labels else "",
        "requests": stream.request_ids,
        "prompt_tokens": stream.prompt_tokens,
        "cached_tokens": sum(stream.cached_tokens),
        "output_tokens": stream.output_tokens,
        "ttft_ms": None if first is None else (first - stream.submitted_at) / 1000,
        "finish": reasons + ["abort"] * (choices - len(reasons)),
    }
