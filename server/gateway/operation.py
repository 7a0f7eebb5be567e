"""A gateway's /health, /ready and teacher's controls, and the routes that any replica can answer.

A control goes to all replicas at once, or with `?replica=ID` to one. The gateway checks its client as
one server does, and sends the cluster's key to the replicas.
"""

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from engine.cluster.events import Controlled
from server.api import adapters, status
from server.api.operation import Ready
from server.api.seat import LINES, SeatQuestion
from server.gateway.follower import Follower
from server.gateway.gateway import Gateway
from server.gateway.health import ClusterHealth, health_of, what_is_missing
from server.gateway.upstream import LostError, lost, request_headers, response_headers
from server.http.access import check_allowed
from server.http.errors import ApiError, unavailable

# Controls of one server that a gateway sends on. /engine/restart and /engine/screen are missing: a
# page that shows one engine needs them.
CONTROLS = ("pause", "resume", "step", "run_until", "hold_submissions", "release_submissions")
# Routes that any replica answers alike, apart from generation.
_ANY_REPLICA = (
    ("GET", "/v1/models", "OpenAI"),
    ("GET", "/v1/models/{name:path}", "OpenAI"),
    ("POST", "/tokenize", "Tokens"),
    ("POST", "/detokenize", "Tokens"),
    ("POST", "/v1/completions/render", "OpenAI"),
    ("POST", "/v1/chat/completions/render", "OpenAI"),
    ("POST", "/v1/responses/render", "OpenAI"),
)
# Routes that change every replica alike.
_ALL_REPLICAS = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")
_ONE_ENGINE = (
    ("POST", "/engine/restart"),
    ("POST", "/engine/screen"),
    ("GET", "/compare"),
    ("GET", "/kv_event_sources"),
)
# How the replicas' answers to a control become one answer.
_COMBINED = {"step": max, "paused": all, "holding": all, "requests": sum}

OneReplica = Annotated[
    str | None, Query(description="A replica's id, as in /health. Default: all replicas.")
]


class ClusterReady(Ready):
    """A gateway that accepts requests."""

    missing: str = Field(description="Which replicas accept none, and why; empty if all do.")


def routes(gateway: Gateway) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.get("/health", tags=["Operation"], responses={503: {"model": ClusterHealth}})
    async def health(response: Response) -> ClusterHealth:
        """Return the state of every replica, with status 503 if none accepts requests.

        Only a gateway's answer has `replicas`.
        """
        told = health_of(gateway)
        if told.status == "no_replica":
            response.status_code = 503
        return told

    @router.get("/ready", tags=["Operation"])
    async def ready() -> ClusterReady:
        """Return 200 if at least one replica accepts requests; otherwise 503."""
        gateway.check_accepting()
        missing = what_is_missing(gateway)
        return ClusterReady(status="ready", trace_error=gateway.trace_error, missing=missing)

    router.include_router(
        status.routes_of(
            gateway.check_accepting,
            lambda: sum(one.in_flight for one in gateway.dispatcher.replicas.values()),
            gateway.now,
        )
    )
    for name in CONTROLS:
        _add_control(router, gateway, name)

    @router.post("/seat", tags=["Event log"], responses=LINES)
    async def seat(request: Request, body: SeatQuestion) -> Response:
        """Run a copy of the log of `replica` again and decide a step otherwise, for the live page."""
        check_allowed(request, gateway.settings)
        if body.replica is None:
            raise _one_engine(gateway, "/seat without `replica`")
        return await forward(gateway, gateway.named(body.replica), request, "/seat")

    for method, path, tag in _ANY_REPLICA:
        router.add_api_route(
            path, _any_replica(gateway), methods=[method], tags=[tag], name=f"{method} {path}"
        )
    for path in _ALL_REPLICAS:
        router.add_api_route(
            path,
            _every_replica(gateway),
            methods=["POST"],
            tags=["Adapters"],
            name=path,
            response_class=Response,
            responses=adapters.DONE,
        )
    for method, path in _ONE_ENGINE:
        router.add_api_route(
            path, _use_a_replica(gateway), methods=[method], include_in_schema=False
        )
    return router


def _add_control(router: APIRouter, gateway: Gateway, name: str) -> None:
    path = f"/engine/{name}"

    @router.post(path, tags=["Teacher's controls"], name=name, description=_described(name))
    async def control(request: Request, replica: OneReplica = None) -> Response:
        check_allowed(request, gateway.settings)
        followers = _asked(gateway, replica)
        gateway.log.append(Controlled(name, replica, {"at": gateway.now()}))
        answers = await asyncio.gather(*(forward(gateway, one, request, path) for one in followers))
        if replica is not None:
            return answers[0]
        for answer in answers:
            if answer.status_code != 200:
                return answer  # its header x-underglass-replica says whose error it is
        told = {
            follower.member.id: msgspec.json.decode(answer.body)
            for follower, answer in zip(followers, answers, strict=True)
        }
        return Response(msgspec.json.encode(_combined(told)), media_type="application/json")


def _asked(gateway: Gateway, replica: str | None) -> list[Follower]:
    """Return the replica that a client names, or all that can be reached. Raises ApiError."""
    if replica is not None:
        return [gateway.named(replica)]
    followers = [one for one in gateway.followers.values() if one.joined]
    if not followers:
        gateway.check_accepting()
    return followers


def _every_replica(gateway: Gateway) -> Any:
    async def every_replica(request: Request, replica: OneReplica = None) -> Response:
        """Answered by every replica, or by `replica`; see the same route of one server.

        If one of them refuses, its answer is returned; the others have done what was asked. A replica
        that joins later is not told.
        """
        followers, path = _asked(gateway, replica), request.url.path
        answers = await asyncio.gather(*(forward(gateway, one, request, path) for one in followers))
        return next((one for one in answers if one.status_code != 200), answers[0])

    return every_replica


def _described(name: str) -> str:
    return (
        f"See one server's /engine/{name}. Of all replicas: the answers are in `replicas`, and the "
        "other fields combine them: the largest `step`, the sum of `requests`."
    )


def _combined(told: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the replicas' answers by id, and one value for each field that can be combined."""
    first = next(iter(told.values()))
    fields = {
        name: combine(answer[name] for answer in told.values())  # type: ignore[operator]
        for name, combine in _COMBINED.items()
        if name in first
    }
    return fields | {"replicas": told}


def _any_replica(gateway: Gateway) -> Any:
    async def any_replica(request: Request, replica: OneReplica = None) -> Response:
        """Answered by a replica; see the same route of one server."""
        follower = gateway.least_loaded() if replica is None else gateway.named(replica)
        return await forward(gateway, follower, request, request.url.path)

    return any_replica


def _use_a_replica(gateway: Gateway) -> Any:
    async def use_a_replica(request: Request) -> None:
        raise _one_engine(gateway, request.url.path)

    return use_a_replica


def _one_engine(gateway: Gateway, what: str) -> ApiError:
    urls = " or ".join(follower.member.url for follower in gateway.followers.values())
    return ApiError(
        409, f"this is a gateway, and {what} needs one engine: send it to {urls}", code="gateway"
    )


async def forward(gateway: Gateway, follower: Follower, request: Request, path: str) -> Response:
    """Send a client's request to a replica and return its answer. Raises ApiError (503)."""
    headers, body = request_headers(request), await request.body()
    url = follower.member.url + path
    try:
        async with (
            lost(follower),
            gateway.session.request(request.method, url, data=body, headers=headers) as answer,
        ):
            response = Response(await answer.read(), answer.status)
            response.raw_headers += response_headers(answer.headers.items(), follower.member.id)
    except LostError as error:
        message = f"replica {follower.member.id} was lost: {error}"
        raise unavailable(message, "replica_lost") from error
    return response
