"""Before a request reaches its route: the key, where one is set, and how large a body may be.

Pure ASGI. Starlette's BaseHTTPMiddleware would keep a stalled stream alive after its client has left,
and costs four times as much per chunk.
"""

import asyncio
import base64
import secrets
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.http.bodies import (
    CONTROL_BYTES,
    CONTROL_PATHS,
    MAX_JSON_DEPTH,
    BodyLimits,
    depth_and_values,
    read_apart,
)
from server.http.errors import ApiError, bad_request

# Whoever watches over the server must see its health without the key; and a browser has none when it
# opens a page.
_OPEN = frozenset({"/health", "/ready", "/", "/docs", "/openapi.json"})
_OPEN_FOLDERS = ("/page/", "/board/")


def needs_no_key(path: str) -> bool:
    """Whether this path is for everybody, also where the server has a key."""
    return path in _OPEN or path.startswith(_OPEN_FOLDERS)


class ApiKey:
    """Lets nobody in without `Authorization: Bearer KEY`, except to ask how the server is."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request or WebSocket on, or answer 401."""
        is_page = scope["type"] == "http" and needs_no_key(scope["path"])
        if scope["type"] == "lifespan" or is_page or self._has_key(scope):
            await self._app(scope, receive, send)
            return
        refused = ApiError(
            401,
            # OpenAI's words: litellm tells a wrong key by them.
            "Incorrect API key provided: send the server's with the header Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refused.response()(scope, receive, send)

    def _has_key(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, key = given.partition(b" ")
        if scheme.lower() == b"basic" and scope["type"] == "websocket":
            key = _password(key)  # LMQL's client can only be given an address: http://any:KEY@host
        elif scheme.lower() != b"bearer":
            return False
        return secrets.compare_digest(key.strip(), self._key)


def _password(credentials: bytes) -> bytes:
    """The password of Basic authentication (RFC 7617); empty where there is none."""
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except ValueError:
        return b""


class Head:
    """Answers HEAD as GET would, without a body: uvicorn leaves that out (RFC 9110, section 9.3.2).

    Not on /events, whose GET has no end.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, as a GET if it is a HEAD."""
        if scope["type"] == "http" and scope["method"] == "HEAD" and scope["path"] != "/events":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


class BodyLimit:
    """Rejects a body that is too large, too slow, compressed or nested too deep.

    limits    the largest body; see `server/http/bodies.py`
    seconds   how long a body may take to arrive

    A body that is too large is not read to its end, and one with too many values is not parsed. Deep
    nesting would exhaust the stack of the code that walks through it.
    """

    def __init__(self, app: ASGIApp, limits: BodyLimits, seconds: float) -> None:
        self._app = app
        self._limits = limits
        self._seconds = seconds
        self._too_slow = ApiError(
            408,
            f"the body was not there after {seconds:g} s",
            code="request_timeout",
            headers={"Connection": "close"},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its whole body, or refuse it."""
        if scope["type"] != "http" or scope["method"] not in ("POST", "PUT", "PATCH"):
            await self._app(scope, receive, send)
            return
        limit = CONTROL_BYTES if scope["path"].startswith(CONTROL_PATHS) else self._limits.bytes
        if refused := _by_its_head(dict(scope["headers"]), limit):
            await refused.response()(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds):
                body = await _read(receive, limit)
        except TimeoutError:
            await self._too_slow.response()(scope, receive, send)
            return
        if body is None:
            return
        if refused := await self._by_its_content(body, limit):
            await refused.response()(scope, receive, send)
            return
        unread = True

        async def receive_again() -> Message:
            nonlocal unread
            if unread:
                unread = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await self._app(scope, receive_again, send)

    async def _by_its_content(self, body: bytes, limit: int) -> ApiError | None:
        """Why the body must not be parsed, if that is so."""
        if len(body) > limit:
            return _too_large(limit)
        depth, values = await read_apart(len(body), lambda: depth_and_values(body))
        if depth > MAX_JSON_DEPTH:
            message = f"the body is nested {depth} deep, the limit is {MAX_JSON_DEPTH}: flatten it"
            return bad_request(None, message, code="too_deep")
        if values > self._limits.values:
            return ApiError(
                413,
                f"the body has {values} values, the limit is {self._limits.values}: send less in one "
                "request",
                code="too_many_values",
            )
        return None


def _by_its_head(headers: Mapping[bytes, bytes], limit: int) -> ApiError | None:
    """Why the body does not need to be read, if that is so."""
    encoding = headers.get(b"content-encoding", b"").decode("latin-1")
    if encoding.lower() not in ("", "identity"):  # its true size would only show unpacked
        return ApiError(
            415,
            f"Content-Encoding {encoding[:40]!r} is not supported: send the body as it is",
            code="unsupported_encoding",
            headers={"Accept-Encoding": "identity"},
        )
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and (len(announced) > 15 or int(announced) > limit):
        return _too_large(limit)
    return None


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The body, or as much of it as shows that it is too large; None if the client left."""
    body, more = bytearray(), True
    while more and len(body) <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        f"the body is larger than {limit} bytes, the most that this route takes: send less in one "
        "request",
        code="body_too_large",
    )
