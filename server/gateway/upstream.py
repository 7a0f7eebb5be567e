"""Requests to a replica: which headers pass, and the keys that the gateway adds.

aiohttp is the client, because it passes bodies on without parsing them and costs a quarter of httpx's
time per chunk. It is in the extra `gateway`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from starlette.requests import Request

from engine.cluster.events import Noticed
from server.core.settings import ServerSettings
from server.http.access import CLUSTER_KEY_HEADER
from server.http.continued import NAME
from server.http.errors import ApiError, unavailable

if TYPE_CHECKING:
    from server.gateway.follower import Follower

# A client's headers that a server reads. The others, such as its key or a page's Origin, are for the
# gateway: it has checked them.
_REQUEST_HEADERS = ("accept", "content-type", "user-agent", "x-client")
# A replica's headers that belong to its own connection, or that the gateway writes itself.
_NOT_PASSED = frozenset(
    (
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "server",
        "transfer-encoding",
        "x-request-id",
        NAME,
    )
)


def own_headers(settings: ServerSettings) -> dict[str, str]:
    """Return the headers with which the gateway identifies itself to its replicas.

    The replicas have the gateway's own key. `settings.cluster_key` makes controls possible.
    """
    headers = {}
    if settings.api_key is not None:
        headers["authorization"] = f"Bearer {settings.api_key}"
    if settings.cluster_key is not None:
        headers[CLUSTER_KEY_HEADER] = settings.cluster_key
    return headers


def open_session(settings: ServerSettings, connect: float) -> aiohttp.ClientSession:
    """Return a client for all replicas; called on the event loop.

    connect  seconds for a connection; streams have no time limit
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect),
        headers=own_headers(settings),
        skip_auto_headers=("accept-encoding", "user-agent"),
        auto_decompress=False,
    )


def request_headers(request: Request) -> dict[str, str]:
    """Return the headers of a client's request that its replica gets, with the same request id."""
    sent = request.headers
    passed = {name: sent[name] for name in _REQUEST_HEADERS if name in sent}
    return passed | {"x-request-id": request.scope["state"]["request_id"].decode()}


def response_headers(headers: Iterable[tuple[str, str]], replica: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of a replica's response that the client gets, and the replica's id."""
    passed = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in headers
        if name.lower() not in _NOT_PASSED
    ]
    return [*passed, (b"x-underglass-replica", replica.encode())]


def reason(error: Exception) -> str:
    """Return in words why a connection to a replica failed."""
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        return "the connection broke"
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else str(error) or type(error).__name__


async def error_message(response: aiohttp.ClientResponse) -> str:
    """Return why a replica rejected a request: its status and its error's message."""
    body = await response.read()
    try:
        message = msgspec.json.decode(body)["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        message = f"{response.url} is not a route of an Underglass server"
    return f"{response.status}: {message}"


class _Error(msgspec.Struct):
    error: dict[str, Any]


class Scopes:
    """Blocks of work that one call ends: all that need a replica, or all that a drain waits for.

    asyncio ends a block from outside by a timeout that is set later.
    """

    def __init__(self) -> None:
        self._open: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def block(self) -> AsyncIterator[None]:
        """Run a block; `end` raises TimeoutError in it."""
        async with asyncio.timeout(None) as scope:
            self._open.add(scope)
            try:
                yield
            finally:
                self._open.discard(scope)

    def end(self) -> None:
        """Raise TimeoutError in every open block."""
        for scope in self._open:
            scope.reschedule(0)


class LostError(Exception):
    """A replica failed while it had a request. `noticed` says how the gateway noticed it.

    code  that of the replica's error, if it has sent one
    """

    is_final = False

    def __init__(
        self,
        why: str,
        noticed: Noticed = "closed",
        replica: "Follower | None" = None,
        *,
        code: str | None = None,
    ) -> None:
        super().__init__(why)
        self.noticed = noticed
        self.replica = replica
        self.code = code


class RefusedError(LostError):
    """The replica did not take the request. `answer` is what it said.

    is_final  whether other replicas would say the same: it cannot continue this stream
    """

    def __init__(self, answer: ApiError) -> None:
        noticed: Noticed = "refused" if answer.status in (429, 503) else "error"
        super().__init__(str(answer), noticed, code=answer.error["code"])
        self.answer = answer
        self.is_final = 400 <= answer.status < 500 and answer.status != 429


async def refused(response: aiohttp.ClientResponse) -> RefusedError:
    """Return a replica's error, for a request that another one may serve."""
    try:
        error = msgspec.json.decode(await response.read(), type=_Error).error
        answer = ApiError(response.status, **error)
    except (msgspec.DecodeError, TypeError):
        answer = unavailable(f"{response.url} answered {response.status}", "replica_lost")
    if (seconds := response.headers.get("retry-after")) is not None:
        answer.headers["Retry-After"] = seconds
    return RefusedError(answer)


@asynccontextmanager
async def lost(follower: "Follower", within: float | None = None) -> AsyncIterator[asyncio.Timeout]:
    """Run a block that needs a replica, for at most `within` seconds unless it is rescheduled.

    Raises LostError if the replica or the connection fails, or if the time is up. Nothing waits for a
    replica that was ejected because it is silent.
    """
    if (fault := follower.health.ejection) and fault.noticed == "silent":
        raise LostError(fault.why, fault.noticed, follower)
    deadline = asyncio.timeout(within)
    try:
        async with follower.work.block(), deadline:
            yield deadline
    except (aiohttp.ClientError, OSError) as error:  # includes TimeoutError
        why = reason(error)
        noticed: Noticed = "closed"
        if deadline.expired():
            why, noticed = f"no answer within {within:.1f} s", "late"
        elif isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            noticed = "unreachable"
        elif (fault := follower.health.ejection) and isinstance(error, TimeoutError):
            why, noticed = fault.why, fault.noticed
        raise LostError(why, noticed, follower) from error
