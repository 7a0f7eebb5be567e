"""A gateway's /health: how many replicas it should have, how many accept requests, and what is wrong
with each of the others, since when.

    ok          every replica that should run accepts requests
    degraded    some do not; the others serve
    no_replica  none does: requests get 503
    draining    the gateway is about to stop

/ready, /metrics and the error of a request that finds no replica say the same in fewer words.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from server.api.operation import EngineCounts, engine_counts
from server.gateway.replica_set import RayHealth

if TYPE_CHECKING:
    from server.gateway.gateway import Gateway

Status = Literal["ok", "degraded", "draining", "no_replica"]


class ReplicaHealth(EngineCounts):
    """A replica after the last step that the gateway knows of."""

    url: str
    role: str
    status: Literal["ok", "not_ready"]
    not_ready: str = Field(description="Why it accepts no requests; empty if it does.")
    trace_error: str = Field(description="Why its `--trace-file` is no longer written, or empty.")
    in_flight: int = Field(
        description="Requests of this gateway that the replica has not answered."
    )


class NotReady(BaseModel):
    """A replica that should accept requests, but does not."""

    id: str | None = Field(description="None for a replica that has not joined yet.")
    url: str | None
    state: Literal["starting", "unreachable", "ejected", "not_ready"]
    reason: str
    since: datetime

    def __str__(self) -> str:
        name = "a replica" if self.id is None else f"replica {self.id} at {self.url}"
        return f"{name}: {self.reason}"


class Moving(BaseModel):
    """The prices of moving KV between replicas and of computing it, in milliseconds.

    They follow the moves and the prompts of the requests; see `server/gateway/prices.py`. None: there
    are not enough of them yet.
    """

    fixed_ms: float | None = Field(description="For a move, however long.")
    block_ms: float | None = Field(description="For each block of a move.")
    token_ms: float | None = Field(description="For computing the KV of a token.")
    moves: int = Field(description="How many moves the prices rest on.")
    steps: int = Field(description="How many steps the price of a token rests on.")
    from_blocks: int | None = Field(
        description="Prompts are moved from this number of blocks on; None: none is, or not known."
    )
    off: str = Field(description="Why no prompt is moved now, or empty.")


class ClusterHealth(BaseModel):
    """The replicas that can be reached, by id, and all that do not accept requests."""

    status: Status
    router: str
    desired: int = Field(description="Replicas that should accept requests.")
    ready: int = Field(description="Replicas that accept requests.")
    ejected: int = Field(description="Replicas that are present but get no requests for a while.")
    replicas: dict[str, ReplicaHealth]
    not_ready: list[NotReady]
    ray: RayHealth | None = Field(description="Ray, if it runs the replicas.")
    moving: Moving | None = Field(description="With --roles: the prices of moving KV.")


def health_of(gateway: "Gateway") -> ClusterHealth:
    """Return the answer of /health."""
    states, load = gateway.log.state.states, gateway.dispatcher.replicas
    replicas = {
        id_: ReplicaHealth(
            url=follower.member.url,
            role=follower.member.role,
            status="ok" if follower.ready else "not_ready",
            not_ready=follower.problem[1],
            trace_error=follower.status.get("trace_error", ""),
            in_flight=load[id_].in_flight,
            **engine_counts(states[id_]),
        )
        for id_, follower in gateway.followers.items()
        if follower.joined and id_ in states
    }
    missing = list(not_ready(gateway))
    return ClusterHealth(
        status=_status(gateway, missing),
        router=gateway.router_name,
        desired=gateway.members.desired,
        ready=len(gateway.ready),
        ejected=sum(one.state == "ejected" for one in missing),
        replicas=replicas,
        not_ready=missing,
        ray=gateway.members.ray,
        moving=_moving(gateway),
    )


def _moving(gateway: "Gateway") -> Moving | None:
    decoding = [one for one in gateway.followers.values() if one.member.role == "decode"]
    states = gateway.log.state.states
    sizes = [states[one.member.id].block_size for one in decoding if one.member.id in states]
    if not decoding:
        return None
    prices = gateway.mover.prices
    known = ("fixed_ms", "block_ms", "token_ms")
    costs = dict.fromkeys(known) if prices.costs is None else asdict(prices.costs)
    return Moving(
        **costs,
        moves=prices.moves,
        steps=prices.steps,
        from_blocks=prices.least_blocks(sizes[0]) if sizes else None,
        off=prices.off,
    )


def not_ready(gateway: "Gateway") -> Iterator[NotReady]:
    """Yield the replicas that should accept requests, but do not."""
    followers = [one for one in gateway.followers.values() if not one.retired]
    for one in followers:
        state, reason = one.problem
        if state:
            id_, url = one.member.id, one.member.url
            yield NotReady(id=id_, url=url, state=state, reason=reason, since=one.since)
    since, reason = gateway.members.since, "it is being started"
    for _ in range(gateway.members.desired - len(followers)):
        yield NotReady(id=None, url=None, state="starting", reason=reason, since=since)


def counts(gateway: "Gateway") -> dict[str, int]:
    """Return the number of replicas by state, for /metrics."""
    states: Counter[str] = Counter(one.state for one in not_ready(gateway))
    names = "starting", "unreachable", "ejected", "not_ready"
    known = {"desired": gateway.members.desired, "ready": len(gateway.ready)}
    return known | {name: states[name] for name in names}


def what_is_missing(gateway: "Gateway") -> str:
    """Return in a sentence how many replicas accept requests, and why the others do not; or ""."""
    missing = list(not_ready(gateway))
    if not missing:
        return ""
    several = f"{len(gateway.ready)} of {gateway.members.desired} replicas accept requests"
    return f"{several}; {'; '.join(map(str, missing))}"


def _status(gateway: "Gateway", missing: list[NotReady]) -> Status:
    if gateway.draining:
        return "draining"
    if not gateway.ready:
        return "no_replica"
    return "degraded" if missing else "ok"
