"""The bookkeeping around a router: who is alive, what is in flight, and the log of it all.

The gateway and the simulator both route through a `Dispatcher`. It tells the router what happened,
counts requests in flight, and appends each decision to the cluster log.

When a replica dies, its requests without a token go to another replica, once. A request that has tokens
is lost: its client has them already, and another replica might continue differently.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from engine.events.cluster import (
    CLUSTER_SCHEMA_VERSION,
    ClusterStarted,
    Of,
    Placed,
    ReplicaJoined,
    ReplicaLeft,
    RequestLost,
    Routed,
)
from engine.events.cluster_log import ClusterLog
from engine.events.vocabulary import Event
from engine.routing.checked import checked_router
from engine.routing.router import Decision, NoReplicaError, Replica, Router, described

MAX_ATTEMPTS = 2


@dataclass(slots=True)
class _Live:
    """A request that was routed and has not ended. `is_lost`: its replica died."""

    replica: str
    attempt: int
    has_token: bool = False
    is_lost: bool = False


class Dispatcher:
    """Routes requests and logs what it does. Times are microseconds since the gateway started.

    router   a name, or a Router. Raises ValueError for anything else. A learner's router is checked
    unix_us  the wall time of the start
    timer    returns nanoseconds, to measure how long a decision takes; None in a simulation

    replicas  by id, in the order in which they joined
    """

    def __init__(
        self,
        router: Router | str,
        log: ClusterLog,
        *,
        unix_us: int,
        timer: Callable[[], int] | None = None,
    ) -> None:
        self.router = checked_router(router)
        self.log = log
        self.replicas: dict[str, Replica] = {}
        self._timer = timer
        self._live: dict[int, _Live] = {}
        name, options = described(router if isinstance(router, Router) else self.router)
        log.append(ClusterStarted(CLUSTER_SCHEMA_VERSION, name, options, {"unix_us": unix_us}))

    # Replicas

    def join(
        self,
        replica: str,
        block_size: int,
        now_us: int,
        *,
        url: str = "",
        role: str = "",
        offset: int = 0,
        rtt: int = 0,
    ) -> None:
        """Add a replica. `ReplicaJoined` describes the last four."""
        t = {"at": now_us, "offset": offset, "rtt": rtt}
        self.log.append(ReplicaJoined(replica, url, role, t))
        self.replicas[replica] = Replica(replica)
        self.router.on_joined(replica, block_size)

    def leave(self, replica: str, why: str, now_us: int) -> list[int]:
        """Drop a replica. Return its requests that have to be routed again; the others are lost."""
        self.log.append(ReplicaLeft(replica, why, {"at": now_us}))
        its = [
            request
            for request, live in self._live.items()
            if live.replica == replica and not live.is_lost
        ]
        again = [request for request in its if self.lost(request, now_us)]
        del self.replicas[replica]
        self.router.on_left(replica)
        return again

    def event(self, replica: str, seq: int, event: Event, now_us: int) -> None:
        """Log an event of a replica, and tell the router."""
        self.log.append(Of(replica, seq, event))  # type: ignore[arg-type] # one of AnyEvent
        self.router.on_event(replica, event, now_us)

    # Requests

    def route(
        self,
        request: int,
        tokens: Sequence[int],
        label: str,
        now_us: int,
        *,
        among: Collection[str] | None = None,
        pinned: bool = False,
    ) -> Decision:
        """Choose a replica for a request, and log the decision.

        request  a new number, or one that `leave` returned
        among    the replicas to choose from; None: all
        pinned   `among` has one replica, to which the client's session belongs

        Raises NoReplicaError if there is none, and RouterError for a mistake of a learner's router.
        """
        there = [one for one in self.replicas.values() if among is None or one.id in among]
        if not there:
            of = "" if among is None else f" of {', '.join(sorted(among))}"
            raise NoReplicaError(f"request {request} cannot be routed: no replica{of} is alive")
        began = self._timer() if self._timer is not None else 0
        if pinned:
            decision = Decision(there[0].id, "pinned")
        else:
            decision = self.router.choose(request, tokens, there, now_us)
        t: dict[str, Any] = {"at": now_us}
        if self._timer is not None:
            t["us"] = (self._timer() - began) // 1000
        before = self._live.get(request)
        live = _Live(decision.replica, 1 if before is None else before.attempt + 1)
        self._live[request] = live
        self.log.append(
            Routed(
                request=request,
                label=label,
                replica=decision.replica,
                attempt=live.attempt,
                reason=decision.reason,
                prompt=len(tokens),
                hits=decision.hits,
                loads={one.id: one.in_flight for one in there},
                scores=decision.scores,
                t=t,
            )
        )
        self.replicas[decision.replica].in_flight += 1
        self.router.on_routed(request, tokens, decision.replica, now_us)
        return decision

    def placed(self, request: int, its_request: int, now_us: int) -> None:
        """Log that a request arrived at its replica, and the number that it has there."""
        live = self._live.get(request)
        if live is not None and not live.is_lost:
            self.log.append(Placed(request, live.replica, its_request, {"at": now_us}))

    def first_token(self, request: int, now_us: int) -> None:
        """Note that a request has a token. Only the first call counts."""
        live = self._live.get(request)
        if live is not None and not live.has_token:
            live.has_token = True
            self.router.on_first_token(request, now_us)

    def lost(self, request: int, now_us: int, *, again: bool = True) -> bool:
        """Note that a request's replica failed; return whether to route the request again.

        Without `again` there is no other replica. `leave` has called this for its requests; a second
        call gives the same answer.
        """
        live = self._live.get(request)
        if live is None:
            return False
        if not live.is_lost:
            live.is_lost = True
            self.replicas[live.replica].in_flight -= 1
            self.router.on_ended(request, now_us)
        if again and not live.has_token and live.attempt < MAX_ATTEMPTS:
            return True
        del self._live[request]
        self.log.append(RequestLost(request, live.replica, {"at": now_us}))
        return False

    def ended(self, request: int, now_us: int) -> None:
        """Note that a request ended, for whatever reason. Only the first call counts."""
        live = self._live.pop(request, None)
        if live is not None and not live.is_lost:
            self.replicas[live.replica].in_flight -= 1
            self.router.on_ended(request, now_us)
