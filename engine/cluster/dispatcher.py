"""The bookkeeping around a router: live replicas, requests in flight, and the log of decisions.

The gateway and the simulator both route through a `Dispatcher`. It tells the router what happened,
counts requests in flight, and appends each decision to the cluster log.

When a replica dies, its requests go to other replicas, which continue after the tokens that their
clients have. A request is lost only if no other replica can go on.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from engine.cluster.checked import checked_router
from engine.cluster.cluster_log import ClusterLog
from engine.cluster.events import (
    CLUSTER_SCHEMA_VERSION,
    AnyClusterEvent,
    ClusterStarted,
    Of,
    Placed,
    ReplicaJoined,
    ReplicaLeft,
    RequestLost,
    Routed,
)
from engine.cluster.router import Decision, NoReplicaError, Replica, Router, described
from engine.core.log.vocabulary import Event, RequestArrived, RequestFinished, StepFinished
from engine.extensions.prefix_keys import keyed


@dataclass(slots=True)
class _Live:
    """A request that was routed and has not ended. `is_lost` says whether its replica failed."""

    replica: str
    attempt: int
    has_token: bool = False
    is_lost: bool = False


class Dispatcher:
    """Routes requests and logs its decisions. Times are microseconds since the gateway started.

    router   a name, or a Router, which is checked if a learner wrote it. Raises ValueError for
             anything else
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
        self._loads: dict[str, int] = {}  # requests in flight, by replica
        self._live: dict[int, _Live] = {}
        self._followed = set[int]()  # requests that the router knows from before the log
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
        run: str = "",
        offset: int = 0,
        rtt: int = 0,
    ) -> None:
        """Add a replica. `ReplicaJoined` describes the last five arguments."""
        t = {"at": now_us, "offset": offset, "rtt": rtt}
        self.log.append(ReplicaJoined(replica, url, role, run, t))
        self.replicas[replica], self._loads[replica] = Replica(replica), 0
        self.router.on_joined(replica, block_size)

    def leave(self, replica: str, why: str, now_us: int) -> list[int]:
        """Drop a replica. Return its requests, each of which is to be routed again or lost."""
        self.log.append(ReplicaLeft(replica, why, {"at": now_us}))
        affected = [
            request
            for request, live in self._live.items()
            if live.replica == replica and not live.is_lost
        ]
        for request in affected:
            self.lost(request, now_us)
        del self.replicas[replica], self._loads[replica]
        self.router.on_left(replica)
        return affected

    def event(self, replica: str, seq: int, event: Event, now_us: int) -> None:
        """Log an event of a replica, and pass it to the router."""
        self.log.append(Of(replica, seq, event))
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
        output: int = 0,
    ) -> Decision:
        """Choose a replica for a request, and log the decision.

        request  a new number, or one that `leave` returned
        among    the replicas to choose from; None means all
        pinned   the client's session belongs to one replica, the only one in `among`
        output   how many of the tokens, the last ones, the client has: they were generated elsewhere

        Raises NoReplicaError if none of the replicas is alive, and RouterError for a mistake of a
        learner's router.
        """
        candidates, loads = list(self.replicas.values()), self._loads.copy()
        if among is not None:
            candidates = [replica for replica in candidates if replica.id in among]
            loads = {replica.id: replica.in_flight for replica in candidates}
        if not candidates:
            names = "" if among is None else f" of {', '.join(sorted(among))}"
            raise NoReplicaError(f"request {request} cannot be routed: no replica{names} is alive")
        began = self._timer() if self._timer is not None else 0
        if pinned:
            decision = Decision(candidates[0].id, "pinned")
        else:
            decision = self.router.choose(request, tokens, candidates, now_us)
        t: dict[str, Any] = {"at": now_us}
        if self._timer is not None:
            t["us"] = (self._timer() - began) // 1000
        previous = self._live.get(request)
        live = _Live(decision.replica, 1 if previous is None else previous.attempt + 1)
        self._live[request] = live
        self.log.append(
            Routed(
                request=request,
                label=label,
                replica=decision.replica,
                attempt=live.attempt,
                reason=decision.reason,
                prompt=max(0, len(tokens) - output),
                hits=decision.hits,
                loads=loads,
                scores=decision.scores,
                terms=decision.terms,
                ties=decision.ties,
                output=output,
                t=t,
            )
        )
        self._count(decision.replica, 1)
        self.router.on_routed(request, tokens, decision.replica, now_us)
        return decision

    def follow(
        self,
        events: Iterable[AnyClusterEvent],
        arrived: Mapping[int, RequestArrived],
        live: AbstractSet[int],
    ) -> None:
        """Tell the router what happened before the log begins. Requests get negative numbers there.

        arrived  the requests that it sent then, by number
        live     those that have not ended, and are `resumed`
        """
        now, numbers = 0, dict[tuple[str, int], int]()
        for event in events:
            now = max(now, getattr(event, "t", {}).get("at", 0))
            match event:
                case Of(replica=replica) if replica in self.replicas:
                    self.router.on_event(replica, event.event, now)
                    ended = event.event
                    rows = ended.tokens if isinstance(ended, StepFinished) else ()
                    for number in live & {numbers.get((replica, row.request), 0) for row in rows}:
                        self.router.on_first_token(number, now)
                    if isinstance(ended, RequestFinished):
                        number = numbers.get((replica, ended.request), 0)
                        if number in self._followed:
                            self._followed.remove(number)
                            self.router.on_ended(number, now)
                case Placed():
                    numbers[event.replica, event.its_request] = -event.request
                case Routed() if (request := arrived.get(event.request)) is not None:
                    tokens = keyed(request.prompt, tuple(request.extra_key))
                    for replica, load in event.loads.items():
                        if replica in self.replicas:
                            self.replicas[replica].in_flight = load
                    self._followed.add(-event.request)
                    self.router.choose(-event.request, tokens, [*self.replicas.values()], now)
                    self.router.on_routed(-event.request, tokens, event.replica, now)
        for number in self._followed.difference(live):
            self.router.on_ended(number, now)
        for known in self.replicas.values():
            known.in_flight = 0

    def resumed(
        self, request: int, tokens: Sequence[int], replica: str, now_us: int, *, has_token: bool
    ) -> None:
        """Count a request that was routed before the log begins, and has not ended."""
        self._live[request] = _Live(replica, 1)
        self._count(replica, 1)
        if request not in self._followed:
            self.router.on_routed(request, tokens, replica, now_us)
        if has_token:
            self.first_token(request, now_us)

    def placed(self, request: int, its_request: int, now_us: int) -> None:
        """Log that a request arrived at its replica, which calls it `its_request`."""
        live = self._live.get(request)
        if live is not None and not live.is_lost:
            self.log.append(Placed(request, live.replica, its_request, {"at": now_us}))

    def first_token(self, request: int, now_us: int) -> None:
        """Note that a request has a token. Only the first call counts."""
        live = self._live.get(request)
        if live is not None and not live.has_token:
            live.has_token = True
            self.router.on_first_token(request, now_us)

    def lost(self, request: int, now_us: int, *, again: bool = True) -> None:
        """Note that a request's replica failed. Without `again`, the request has ended with an error.

        `leave` calls this for all requests of the replica.
        """
        live = self._live.get(request)
        if live is None:
            return
        if not live.is_lost:
            live.is_lost = True
            self._count(live.replica, -1)
            self.router.on_ended(request, now_us)
        if not again:
            del self._live[request]
            self.log.append(RequestLost(request, live.replica, {"at": now_us}))

    def ended(self, request: int, now_us: int) -> None:
        """Note that a request ended, for whatever reason. Only the first call counts."""
        live = self._live.pop(request, None)
        if live is not None and not live.is_lost:
            self._count(live.replica, -1)
            self.router.on_ended(request, now_us)

    def _count(self, replica: str, requests: int) -> None:
        self.replicas[replica].in_flight += requests
        self._loads[replica] += requests
