"""CORS: lets the pages of named sites use this server from a browser. Off unless sites are named.

A browser asks first (a *preflight*, OPTIONS without any key) whether a page may send what it wants
to send, and shows the page an answer only where the answer says so. A site that is not named gets no
word about it: its preflight ends as an ordinary 405, and its page sees nothing.

Source: the Fetch standard, "CORS protocol"; Private Network Access for pages of the open web that ask
for a server on this machine. Starlette's CORSMiddleware answers a refusal in plain text.
"""

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS = b"GET, POST"
_MAX_AGE = b"600"
# What a page may read of an answer beside its body.
_EXPOSED = b"retry-after, www-authenticate, x-request-id, x-underglass-request"


class Cors:
    """Answers preflights of the named sites and marks what their pages may read."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = {origin.encode() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer a preflight."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        granted = [(b"vary", b"Origin")]
        if origin is not None and (origin in self._origins or b"*" in self._origins):
            granted.append((b"access-control-allow-origin", origin))
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                granted += _preflight(headers)
                await send({"type": "http.response.start", "status": 204, "headers": granted})
                await send({"type": "http.response.body", "body": b""})
                return
            granted.append((b"access-control-expose-headers", _EXPOSED))

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *granted]
            await send(message)

        await self._app(scope, receive, send_marked)


def _preflight(headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Every header is welcome: SDKs send a dozen of their own."""
    answer = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", _MAX_AGE),
        (b"vary", b"Access-Control-Request-Headers, Access-Control-Request-Private-Network"),
    ]
    if wanted := headers.get(b"access-control-request-headers"):
        answer.append((b"access-control-allow-headers", wanted))
    if headers.get(b"access-control-request-private-network") == b"true":
        answer.append((b"access-control-allow-private-network", b"true"))
    return answer
