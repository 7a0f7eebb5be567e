"""Before a request reaches its route: the key, where one is set, and how large a body may be.

Pure ASGI. Starlette's BaseHTTPMiddleware would keep a stalled stream alive after its client has left,
and costs four times as much per chunk.
"""

import asyncio
import base64
import re
import secrets
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import ApiError, bad_request

# Whoever watches over the server must see its health without the key; and a browser has none when it
# opens a page.
_OPEN = frozenset({"/health", "/ready", "/", "/docs", "/openapi.json"})
_OPEN_FOLDERS = ("/page/", "/board/")

MAX_JSON_DEPTH = 64
# Strings, also one that never ends, and brackets. Nothing in it can make the search go back.
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


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
    """Refuses a body of more than `limit` bytes, announced or not, one that is not there after
    `seconds`, one that is compressed, and JSON that is nested too deep.

    A body that is too large is not read to its end. One that is nested a thousand deep is a small
    one, and would exhaust the stack of whatever walks through it.
    """

    def __init__(self, app: ASGIApp, limit: int, seconds: float) -> None:
        self._app = app
        self._limit = limit
        self._seconds = seconds
        self._too_slow = ApiError(
            408,
            f"the body was not there after {seconds:g} s",
            code="request_timeout",
            headers={"Connection": "close"},
        )
        self._too_large = ApiError(
            413, f"the body is larger than {limit} bytes: send less", code="body_too_large"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its whole body, or refuse it."""
        if scope["type"] != "http" or scope["method"] not in ("POST", "PUT", "PATCH"):
            await self._app(scope, receive, send)
            return
        if refused := self._by_its_head(dict(scope["headers"])):
            await refused.response()(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._read(receive)
        except TimeoutError:
            await self._too_slow.response()(scope, receive, send)
            return
        if body is None:
            return
        if len(body) > self._limit:
            await self._too_large.response()(scope, receive, send)
            return
        if _too_deep(body):
            refused = bad_request(
                None, f"the body is nested more than {MAX_JSON_DEPTH} deep", code="too_deep"
            )
            await refused.response()(scope, receive, send)
            return
        unread = True

        async def receive_again() -> Message:
            nonlocal unread
            if unread:
                unread = False
                return {"type": "http.request", "body": bytes(body), "more_body": False}
            return await receive()

        await self._app(scope, receive_again, send)

    def _by_its_head(self, headers: Mapping[bytes, bytes]) -> ApiError | None:
        """Why nothing of the body needs to be read, if that is so."""
        encoding = headers.get(b"content-encoding", b"").decode("latin-1")
        if encoding.lower() not in ("", "identity"):  # how large it is would only show unpacked
            return ApiError(
                415,
                f"Content-Encoding {encoding[:40]!r} is not supported: send the body as it is",
                code="unsupported_encoding",
                headers={"Accept-Encoding": "identity"},
            )
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and (len(announced) > 15 or int(announced) > self._limit):
            return self._too_large
        return None

    async def _read(self, receive: Receive) -> bytearray | None:
        """The body, or as much of it as shows that it is too large; None if the client left."""
        body, more = bytearray(), True
        while more and len(body) <= self._limit:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return body


def _too_deep(body: bytearray) -> bool:
    if body.count(b"[") + body.count(b"{") <= MAX_JSON_DEPTH:  # so is nearly every body
        return False
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(body):
        if found[0] in (b"[", b"{"):
            depth += 1
            if depth > MAX_JSON_DEPTH:
                return True
        elif found[0] in (b"]", b"}"):
            depth -= 1
    return False
