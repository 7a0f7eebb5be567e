"""Access control: the server's Host names, the sites whose pages may use it, and the API key.

The network cannot reach a server on 127.0.0.1, but web pages open on the same machine can. With *DNS
rebinding*, a page from evil.example makes its own name resolve to 127.0.0.1 after it has loaded. The
browser still sees a single site, so the page can read the server's responses. The page cannot hide its
name, because the browser sends it as `Host`, so `Host` must be a known name. A numeric IP address is
always accepted, because DNS is not involved in that case.

CORS does not cover WebSockets, so any page could open a WebSocket to this server. `Origin` names the
page's site and is therefore checked for WebSockets and for the teacher's controls.

All middleware here is plain ASGI. Starlette's BaseHTTPMiddleware would keep a stalled stream open after
its client has disconnected, and it costs four times as much per chunk.
"""

import base64
import ipaddress
import re
import secrets
import socket
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from server.core.settings import ServerSettings
from server.http.errors import ApiError, bad_request

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{0,5})?")

# Monitors check the server's health without the key, and a browser opens a page without it.
_OPEN = frozenset({"/health", "/ready", "/ping", "/", "/docs", "/openapi.json"})
# The header in which a gateway sends its replicas the cluster key.
CLUSTER_KEY_HEADER = "x-underglass-cluster-key"
PAGE_FOLDERS = ("/page/", "/board/", "/docs/")


def needs_no_key(path: str) -> bool:
    """Return whether this path is open to all clients, even if the server requires a key."""
    return path in _OPEN or path.startswith(PAGE_FOLDERS)


class ApiKey:
    """Rejects requests and WebSockets without `Authorization: Bearer KEY`, except on open paths."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request or WebSocket on, or answer 401."""
        is_open = scope["type"] == "http" and needs_no_key(scope["path"])
        if scope["type"] == "lifespan" or is_open or self._has_key(scope):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            # OpenAI's wording, by which litellm recognizes a wrong key.
            "Incorrect API key provided: send the server's key as the header Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error.response()(scope, receive, send)

    def _has_key(self, scope: Scope) -> bool:
        header = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, key = header.partition(b" ")
        if scheme.lower() == b"basic" and scope["type"] == "websocket":
            key = _password(
                key
            )  # LMQL's client can send the key only as part of its address: http://any:KEY@host
        elif scheme.lower() != b"bearer":
            return False
        return secrets.compare_digest(key.strip(), self._key)


def _password(credentials: bytes) -> bytes:
    """Return the password of Basic authentication (RFC 7617); empty if there is none."""
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except ValueError:
        return b""


class HostCheck:
    """Rejects an unknown `Host`, and WebSockets from pages of other sites.

    bound     the address or name that the server listens on
    allowed   additional names to accept
    origins   sites whose pages may use the server; "*" for all
    """

    def __init__(
        self, app: ASGIApp, bound: str, allowed: Iterable[str], origins: Collection[str]
    ) -> None:
        self._app = app
        self._origins = origins
        self._names = {bound.lower(), *(name.lower() for name in allowed)}
        if not is_loopback(bound):  # other machines use this machine's name
            hostname = socket.gethostname().lower()
            self._names |= {hostname, f"{hostname}.local"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        error = self._check(scope) if scope["type"] in ("http", "websocket") else None
        if error is None:
            await self._app(scope, receive, send)
        else:
            await error.response()(scope, receive, send)

    def _check(self, scope: Scope) -> ApiError | None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if not hosts and scope["http_version"] == "1.0":
            return None  # HTTP/1.0 does not require Host, and no browser uses it
        if len(hosts) != 1:
            return bad_request(None, "send exactly one Host header", code="bad_host")
        host = _HOST.fullmatch(hosts[0].lower())
        name = (host["v6"] or host["name"].removesuffix(".")) if host else ""
        is_local = name == "localhost" or name.endswith(".localhost")
        if not (is_local or name in self._names or _is_address(name)):
            return ApiError(
                403,
                f"{hosts[0][:100]!r} is not one of this server's names: add it with --allowed-host, or "
                "use the server's numeric IP address",
                type="permission_error",
                code="host_not_allowed",
            )
        if scope["type"] == "websocket":
            return cross_site(scope, self._origins)
        return None


def cross_site(scope: Scope, origins: Collection[str]) -> ApiError | None:
    """Return an error if a page of a site that is not allowed sent this request; otherwise None.

    This check is for requests that a browser lets any page send: WebSockets, and POST without a body.
    """
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1")
    host = headers.get(b"host", b"").decode("latin-1")
    if not origin or origin in origins or "*" in origins or _site(origin) == host.lower():
        return None
    return ApiError(
        403,
        f"a page from {origin[:100]} may not use this server: use the server's own page, or allow the "
        "site with --cors-origin",
        type="permission_error",
        code="cross_site",
    )


def may_control(request: HTTPConnection, settings: ServerSettings) -> bool:
    """Return whether a client may pause the engine. Without an API key, only local clients may.

    A replica with a cluster key is controlled only by its gateway, which checks the client.
    """
    if settings.cluster_key is not None:
        sent = request.headers.get(CLUSTER_KEY_HEADER, "")
        return secrets.compare_digest(sent.encode(), settings.cluster_key.encode())
    host = request.client.host if request.client else ""
    return settings.api_key is not None or is_loopback(host)


def check_allowed(request: HTTPConnection, settings: ServerSettings) -> None:
    """Raise ApiError for pages of other sites and for clients that may not pause the engine."""
    if error := cross_site(request.scope, settings.cors_origin):
        raise error
    if not may_control(request, settings):
        if settings.cluster_key is not None:
            raise ApiError(
                403,
                "this server is a replica with a cluster key: send the command to its gateway, or send "
                f"the key in the header {CLUSTER_KEY_HEADER}",
                type="permission_error",
                code="cluster_key",
            )
        raise ApiError(
            403,
            "without a key, the engine can only be paused from this machine: start the server with "
            "--api-key to pause it from other machines",
            type="permission_error",
            code="loopback_only",
        )


def is_loopback(host: str) -> bool:
    """Return whether the address can be reached only from this machine."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _site(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
