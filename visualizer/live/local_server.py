"""A small server for those who know its address. It needs only the standard library.

The address has a secret part, because other users of this machine can reach loopback, too. Pages of
other sites cannot read anything from it: a request from another origin is refused, and on loopback the
name in `Host` must be one of loopback's names, which excludes a rebound DNS name. The server only
serves `routes`, never a file by its path.
"""

import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from visualizer.sources.limits import CHUNK

HOST = "127.0.0.1"
LOOPBACK = (HOST, "localhost")
_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_DRAIN_SECONDS = 1.0  # timeout while a refused file is read to its end
_DIGITS = 15  # maximum digits of a Content-Length
_SECONDS = 30.0  # timeout of a connection without progress
# Whatever a log contains, the page loads nothing from other sites, and other sites cannot frame it. The
# page's own script is inline, and the board's module unpacks itself into a Blob.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src 'self' data: blob:; "
    "script-src 'self' 'unsafe-inline' blob:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Request:
    """A request as a route sees it: the headers, a function that reads the body, and its length."""

    headers: Mapping[str, str]
    read: Callable[[int], bytes]
    length: int


@dataclass(frozen=True)
class Answer:
    """A route's answer. A body that is an iterable is sent piece by piece until it ends."""

    body: bytes | Iterable[bytes]
    kind: str = "text/html; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Answer | Callable[[Request], Answer]  # always the same answer, or one for each request


class LocalServer:
    """Serves `routes`, by method and name ("GET ", "POST translate"), until it is closed.

    Port 0 means any free port. `secret` is the secret part of the address; by default it is random.
    Raises OSError if the port is in use, or this machine does not have the address `host`.
    """

    def __init__(
        self, routes: Mapping[str, Route], port: int = 0, host: str = HOST, secret: str = ""
    ) -> None:
        secret = secret or secrets.token_urlsafe(16)
        names = _HOST if host in LOOPBACK else re.compile(".+")
        handler = type("Handler", (_Handler,), {"routes": routes, "secret": secret, "names": names})
        self._http = ThreadingHTTPServer((host, port), handler)
        self._http.daemon_threads = True
        shown = socket.gethostname() if host == "0.0.0.0" else host
        self.address = f"http://{shown}:{self._http.server_port}/{secret}/"

    def run(self) -> None:
        """Serve until `close` is called, or until Ctrl-C."""
        self._http.serve_forever(poll_interval=0.1)

    def start(self) -> None:
        """Serve in a thread."""
        threading.Thread(target=self.run, name=self.address, daemon=True).start()

    def close(self) -> None:
        """Stop serving. Call this from a thread other than that of `run`."""
        self._http.shutdown()
        self._http.server_close()

    def __exit__(self, *_error: object) -> None:
        self._http.server_close()

    def __enter__(self) -> "LocalServer":
        return self


class _Handler(BaseHTTPRequestHandler):
    routes: ClassVar[Mapping[str, Route]]
    secret: ClassVar[str]
    names: ClassVar[re.Pattern[str]]  # for Host
    timeout = _SECONDS
    server_version, sys_version = "Underglass", ""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal belongs to the command."""

    def _serve(self) -> None:
        try:
            answer = self._answer()
            self._send(answer)
            if answer.status >= HTTPStatus.BAD_REQUEST:
                self._drain()
        except (ConnectionError, TimeoutError):  # the page was closed
            self.close_connection = True

    def _drain(self) -> None:
        """Discard what the page still sends: closing the connection now would lose the answer."""
        with suppress(OSError):  # the page was closed, or sends nothing more
            self.connection.settimeout(_DRAIN_SECONDS)
            self.connection.shutdown(socket.SHUT_WR)
            while self.rfile.read1(CHUNK):
                pass

    def _answer(self) -> Answer:
        refusal = self._refusal()
        if refusal:
            return _text(HTTPStatus.FORBIDDEN, refusal)
        path = self.path.partition("?")[0]
        if path == "/favicon.ico":  # every browser requests it
            return Answer(b"", "image/x-icon", HTTPStatus.NO_CONTENT)
        secret, slash, name = path.removeprefix("/").partition("/")
        if not slash or not secrets.compare_digest(secret.encode(), self.secret.encode()):
            return _text(HTTPStatus.NOT_FOUND, "Open the address that the command printed.")
        route = self.routes.get(f"{self.command} {name}")
        if route is None:
            return _text(HTTPStatus.NOT_FOUND, "There is no such page.")
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or len(length) > _DIGITS:
            return _text(HTTPStatus.BAD_REQUEST, "Content-Length must be a number.")
        request = Request(dict(self.headers.items()), self.rfile.read, int(length))
        return route if isinstance(route, Answer) else route(request)

    def _refusal(self) -> str:
        """Return why a request is refused, or ""."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if not self.names.fullmatch(host):
            return "Host must be 127.0.0.1 or localhost."
        if origin is not None and origin != f"http://{host}":
            return "Origin must be this server."
        return ""

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in {**_HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.kind)
        if isinstance(answer.body, bytes):
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
        else:  # HTTP/1.0: the end of the connection is the end of the body
            self.end_headers()
            for piece in answer.body:
                self.wfile.write(piece)


def _text(status: HTTPStatus, text: str) -> Answer:
    return Answer(text.encode(), "text/plain; charset=utf-8", status)
