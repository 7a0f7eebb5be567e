"""One line per finished request, for whoever runs the server; and the id by which both sides name it.

    {"time": "2026-01-31T09:30:00.123Z", "id": "7d0f...", "from": "192.168.1.7", "method": "POST",
     "route": "/v1/completions", "status": 200, "duration_ms": 412.5, "label": "Ada", "requests": [17],
     "prompt_tokens": 5, "cached_tokens": 0, "output_tokens": 50, "ttft_ms": 9.1, "finish": ["stop"]}

A line is JSON in ASCII, so nothing that a client sends can end it, colour a terminal or pass for
another line. It never holds what was asked or answered. `requests` are the ids in the event log.
"""

import json
import logging
import queue
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.core.log_files import open_log
from server.core.request_stream import RequestStream
from server.http.errors import internal_error

logger = logging.getLogger("underglass")

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
# What watchers and pages fetch by themselves, over and over; it is logged where it fails.
_ROUTINE = frozenset({"/health", "/ready", "/metrics", "/"})
_ROUTINE_FOLDERS = ("/page/", "/board/")
_CLIENT_LEFT = 499  # nginx's status for a client that left before it was answered
_MOST_UNWRITTEN = 10_000

# In a scope: the way for pieces of a body past all that is around the app and looks at heads only. Each
# of those wrappers would cost every token of every stream a call.
SEND_BODY = "underglass.send_body"

# Set around a request: who writes down what it generated. The bridge knows nothing of protocols.
_account: ContextVar[Callable[[RequestStream, str], None]] = ContextVar("account")


def account(generation: RequestStream, label: str) -> None:
    """A generation is over: let whatever it was made for note it."""
    note = _account.get(None)
    if note is not None:
        note(generation, label)


class LogWriter:
    """Writes lines to a file or to standard error, on a thread of its own: a pipe that nobody empties
    holds up that thread and not the server. Lines that find no room are counted, and left out.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Append to a file, or write to standard error. Raises OSError."""
        self._file: BinaryIO = sys.stderr.buffer if path is None else open_log(path, append=True)
        self._lines: queue.Queue[bytes | None] = queue.Queue(_MOST_UNWRITTEN)
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="request log", daemon=True)
        self._thread.start()

    def put(self, line: dict[str, Any]) -> None:
        """Log a line; never waits."""
        if self._left_out:
            line["lines_left_out"] = self._left_out
        try:
            self._lines.put_nowait(json.dumps(line).encode() + b"\n")
            self._left_out = 0
        except queue.Full:
            self._left_out += 1

    def close(self, patience: float = 1.0) -> None:
        """Write what is there, as far as that takes no longer than `patience` seconds."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(patience)

    def _write(self) -> None:
        try:
            while (line := self._lines.get()) is not None:
                self._file.write(line)
                if self._lines.empty():
                    self._file.flush()
        except (OSError, ValueError) as error:
            logger.error("The request log ends here; serving goes on: %s", error)


class RequestLog:
    """Around everything else: an id in each response, a line once it is over, and 500 for what fails.

    The id is the client's own `X-Request-Id` where it is a plain word, else a new one. A WebSocket
    gets a line for each of its generations.
    """

    def __init__(self, app: ASGIApp, writer: LogWriter | None) -> None:
        self._app = app
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
            return
        if scope["type"] == "websocket" and self._writer is not None:
            writer, request_id = self._writer, _request_id(scope)

            def note(generation: RequestStream, label: str) -> None:
                writer.put(_head(scope, request_id) | _generated(generation, label))

            _account.set(note)
        await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        request_id = _request_id(scope)
        generated: dict[str, Any] = {}
        status = 0
        _account.set(lambda generation, label: generated.update(_generated(generation, label)))

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id)]
            await send(message)

        scope[SEND_BODY] = send
        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            logger.exception("request %s failed", request_id.decode())
            if status:
                raise  # uvicorn closes the connection: the client sees that something is missing
            await internal_error(error).response()(scope, receive, send_with_id)
        finally:
            if self._writer is not None and not _is_routine(scope, status):
                line = _head(scope, request_id) | {
                    "status": status or _CLIENT_LEFT,
                    "duration_ms": round((time.monotonic() - began) * 1000, 3),
                }
                self._writer.put(line | generated)


def _request_id(scope: Scope) -> bytes:
    given = dict(scope["headers"]).get(b"x-request-id", b"")
    return given if _SANE_ID.fullmatch(given) else uuid.uuid4().hex.encode()


def _is_routine(scope: Scope, status: int) -> bool:
    path = scope["path"]
    return 0 < status < 400 and (path in _ROUTINE or path.startswith(_ROUTINE_FOLDERS))


def _head(scope: Scope, request_id: bytes) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {
        "time": now.removesuffix("+00:00") + "Z",
        "id": request_id.decode(),
        "from": scope["client"][0] if scope.get("client") else "",
        "method": scope.get("method", "WebSocket"),
        "route": scope["path"][:200],
    }


def _generated(generation: RequestStream, label: str) -> dict[str, Any]:
    """What the engine did for it."""
    choices = sum(prompt.params.samples for prompt in generation.prompts)
    reasons = generation.finish_reasons
    first = generation.first_at
    return {
        "label": label[:100],
        "requests": generation.request_ids,
        "prompt_tokens": generation.prompt_tokens,
        "cached_tokens": sum(generation.cached_tokens),
        "output_tokens": generation.output_tokens,
        "ttft_ms": None if first is None else (first - generation.submitted_at) / 1000,
        "finish": reasons + ["abort"] * (choices - len(reasons)),
    }
