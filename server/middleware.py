"""Around every request: an id in the response, and the key where one is set. Pure ASGI.

Starlette's BaseHTTPMiddleware would keep a stalled stream alive after its client has left, and
costs four times as much per chunk.
"""

import secrets
import uuid

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import ApiError

# Whoever watches over the server must see its health without the key; and a browser has none when it
# opens a page.
_OPEN = frozenset({"/health", "/ready", "/", "/docs", "/openapi.json"})
_OPEN_FOLDERS = ("/page/", "/board/")


class RequestId:
    """Gives each response an `x-request-id`: the client's own, or a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = given if 0 < len(given) <= 128 else uuid.uuid4().hex.encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, receive, send_with_id)


class BodyLimit:
    """Refuses a request body of more than `limit` bytes, announced or not."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._refused = ApiError(
            413, f"the body is larger than {limit} bytes: send less", code="body_too_large"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting what comes, or answer 413."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._limit:
            await self._refused.response()(scope, receive, send)
            return
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                raise HTTPException(413, self._refused.error["message"])
            return message

        await self._app(scope, receive_counted, send)


class ApiKey:
    """Lets nobody in without `Authorization: Bearer KEY`, except to ask how the server is."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request or WebSocket on, or answer 401."""
        if scope["type"] == "lifespan" or self._is_open(scope) or self._has_key(scope):
            await self._app(scope, receive, send)
            return
        refused = ApiError(
            401,
            "this server asks for a key: send the header Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refused.response()(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"]
        return scope["type"] == "http" and (path in _OPEN or path.startswith(_OPEN_FOLDERS))

    def _has_key(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, key = given.partition(b" ")
        return scheme.lower() == b"bearer" and secrets.compare_digest(key.strip(), self._key)
