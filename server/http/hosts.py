"""Which names this server answers to, and whose pages may use it.

A server on 127.0.0.1 is out of reach for the network, but not for the web pages that people on this
machine have open. With *DNS rebinding* a page of evil.example has its own name answered, a second
later, with 127.0.0.1: to the browser everything stays within one site, and the page reads whatever the
server says. What it cannot hide is the name it was loaded under, which the browser sends as `Host`. So
`Host` must be a name of ours. An address in digits always passes: nobody looked it up.

A WebSocket knows no CORS, so any page could open one to here; `Origin` says whose page it is, and is
checked for those and for the teacher's controls.
"""

import ipaddress
import re
import socket
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from server.http.errors import ApiError, bad_request

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{0,5})?")


class HostCheck:
    """Refuses requests and WebSockets under a name that is not ours, and other sites' WebSockets.

    bound     the address or name that the server listens on
    allowed   further names that it is known by
    origins   sites whose pages may use it; "*" for all
    """

    def __init__(
        self, app: ASGIApp, bound: str, allowed: Iterable[str], origins: Collection[str]
    ) -> None:
        self._app = app
        self._origins = origins
        self._names = {bound.lower(), *(name.lower() for name in allowed)}
        if not is_loopback(bound):  # others come by the machine's own name
            own = socket.gethostname().lower()
            self._names |= {own, f"{own}.local"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        refused = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refused is None:
            await self._app(scope, receive, send)
        else:
            await refused.response()(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if not hosts and scope["http_version"] == "1.0":
            return None  # no browser is that old
        if len(hosts) != 1:
            return bad_request(None, "send exactly one Host header", code="bad_host")
        if not self._is_ours(hosts[0]):
            return ApiError(
                403,
                f"this server is not known as {hosts[0][:100]!r}: start it with --allowed-host and "
                "that name, or use its address in digits",
                type="permission_error",
                code="host_not_allowed",
            )
        if scope["type"] == "websocket":
            return cross_site(scope, self._origins)
        return None

    def _is_ours(self, host: str) -> bool:
        parsed = _HOST.fullmatch(host.lower())
        if parsed is None:
            return False
        name = parsed["v6"] or parsed["name"].removesuffix(".")
        known = name in self._names or name == "localhost" or name.endswith(".localhost")
        return known or _is_address(name)


def cross_site(scope: Scope, origins: Collection[str]) -> ApiError | None:
    """Why a page may not do this, if a page of another site asks; None for everybody else.

    Call it for what a browser lets any page do anywhere: a WebSocket, a POST without a body.
    """
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1")
    host = headers.get(b"host", b"").decode("latin-1")
    if not origin or origin in origins or "*" in origins or _site(origin) == host.lower():
        return None
    return ApiError(
        403,
        f"a page of {origin[:100]} may not use this server: use the server's own page, or name the "
        "site with --cors-origin",
        type="permission_error",
        code="cross_site",
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can be behind the address."""
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
