"""/ping, /version, /load and /clock, for load balancers, clients and gateways.

vLLM has the first three, too. A gateway uses /clock to put the logs of several servers on one clock.
"""

from collections.abc import Callable
from importlib import metadata
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from server.core.models import Models

_CLOCK: dict[int | str, dict[str, Any]] = {
    200: {"description": "An integer.", "content": {"text/plain": {"schema": {"type": "integer"}}}}
}


class Ping(BaseModel):
    """The engine works."""

    status: Literal["ok"]


class Version(BaseModel):
    """The server's version."""

    version: str


class Load(BaseModel):
    """How much work the server has."""

    server_load: int = Field(description="Unfinished requests of all models or replicas.")


def routes(models: Models) -> APIRouter:
    """Return the routes /ping, /version, /load and /clock of a server."""
    return routes_of(
        lambda: models.first.check_alive(),  # noqa: PLW0108 (`first` may be replaced)
        lambda: sum(bridge.unfinished for bridge in models.bridges),
        lambda: models.first.client.now(),  # noqa: PLW0108
    )


def routes_of(
    check: Callable[[], None], unfinished: Callable[[], int], now_us: Callable[[], int]
) -> APIRouter:
    """Return the routes of a server or a gateway.

    check       raises ApiError (503) if it cannot work
    unfinished  returns the number of unfinished requests
    now_us      returns the time in its event log
    """
    router = APIRouter(tags=["Operation"])

    @router.get("/ping")
    @router.post("/ping")
    async def ping() -> Ping:
        """Return 200 if the first model's engine, or a replica of a gateway, works; otherwise 503."""
        check()
        return Ping(status="ok")

    @router.get("/version")
    async def version() -> Version:
        """Return the version of Underglass."""
        return Version(version=metadata.version("underglass"))

    @router.get("/load")
    async def load() -> Load:
        """Return the number of unfinished requests."""
        return Load(server_load=unfinished())

    @router.get("/clock", response_class=Response, responses=_CLOCK)
    async def clock() -> Response:
        """Return the time in microseconds, as in the event log."""
        return Response(str(now_us()), media_type="text/plain")

    return router
