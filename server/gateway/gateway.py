"""The gateway: the replicas that can be reached, the router, and the cluster log. It has no engine. It
is to `server/gateway/` what the model registry is to one server: it is started, drained and stopped by
`server/serving.py`, and every route asks it for a replica.
"""

import asyncio
import logging
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import msgspec

from engine.cluster.cluster_log import ClusterLog, ClusterState
from engine.cluster.dispatcher import Dispatcher
from engine.cluster.events import AnyClusterEvent, ClusterStarted, Hop, HopFailed, Remedy
from engine.cluster.router import NoReplicaError, Router
from server.core.event_log import Followed
from server.core.settings import ServerSettings
from server.gateway.failures import Deadlines
from server.gateway.follower import Follower, Times
from server.gateway.health import what_is_missing
from server.gateway.replica_set import Member, ReplicaSet
from server.gateway.roles import DECODE, KVMover, role_of_next
from server.gateway.trace import ClusterTrace
from server.gateway.upstream import LostError, Scopes, open_session
from server.http.errors import ApiError, unavailable

logger = logging.getLogger("underglass")


class ClusterWindow(ClusterLog, Followed):
    """The last `size` events of the cluster log.

    trace  the file that gets all of them
    state  all events, folded: the replicas that are present and their states
    """

    def __init__(self, size: int, trace: ClusterTrace | None = None) -> None:
        ClusterLog.__init__(self, size)
        Followed.__init__(self)
        self.state = ClusterState()
        self.trace = trace

    def append(self, event: AnyClusterEvent) -> None:
        """Add an event and wake the viewers."""
        self.state.add(event)
        super().append(event)
        if self.trace is not None:
            self.trace.add(event)
        self.wake()

    def keyframes(self) -> list[AnyClusterEvent]:
        """Return the events that stand for the whole log so far."""
        return self.state.head()


class Gateway:
    """Lives on the event loop.

    settings   the gateway's address, access rules and limits; `cluster_key` is sent, not asked for
    router     a router's name, or a Router. Raises ValueError for an unknown name
    trace      the file that gets the whole cluster log
    roles      the replicas' roles, in the order in which they are taken; see `roles.py`
    deadlines  how long the gateway waits for a replica
    router_name  the router's name in the log
    session    the HTTP client for all replicas
    members    the replica set: how many replicas should run, and what Ray does
    followers  by id: the members of the replica set, present or not
    log        the cluster log; `dispatcher` writes it
    routed     number of decisions by replica and reason
    draining   the gateway is about to stop and accepts no more requests
    accepted   requests that clients wait for; they end when the drain's time is up
    """

    def __init__(
        self,
        replicas: ReplicaSet,
        router: Router | str,
        settings: ServerSettings,
        times: Times | None = None,
        roles: Sequence[str] = (),
        *,
        trace: ClusterTrace | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        self.settings = msgspec.structs.replace(settings, cluster_key=None)
        self.times = times or Times()
        self.deadlines = deadlines or Deadlines()
        self.followers: dict[str, Follower] = {}
        self.draining = False
        self._stopped = False
        self.gave_up = asyncio.Event()  # never set: a gateway waits for replicas
        self._keys = settings
        self.members = replicas
        self._roles = roles
        self._start = time.perf_counter_ns()
        self.log = ClusterWindow(settings.log_window, trace)
        self.dispatcher = Dispatcher(
            router, self.log, unix_us=time.time_ns() // 1000, timer=time.perf_counter_ns
        )
        self.router_name = next(one.router for one in self.log if isinstance(one, ClusterStarted))
        self.routed: Counter[tuple[str, str]] = Counter()
        self.mover = KVMover(self)
        self._requests = 0  # number of the last request
        self.accepted = Scopes()
        self.changes = Followed()  # wakes what waits for a replica
        self._running = 0  # requests that the drain waits for
        self._idle = asyncio.Event()
        self._idle.set()

    def followed(self) -> ClusterWindow | None:
        """Return the log for viewers; None when they have to disconnect."""
        return None if self._stopped else self.log

    def now(self) -> int:
        """Return the cluster's time: microseconds since the gateway was created."""
        return (time.perf_counter_ns() - self._start) // 1000

    # Start and stop

    def start(self) -> None:
        """Connect to the replicas; called on the event loop."""
        self.session: aiohttp.ClientSession = open_session(self._keys, self.deadlines.connect)
        self._starting = asyncio.create_task(self.members.start(self._add, self._remove))
        self._starting.add_done_callback(_stop_if_failed)

    async def drain(self) -> None:
        """Accept no more requests, and let running ones finish within the limit."""
        self.draining = True
        self.log.wake()
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                await self._idle.wait()
        except TimeoutError:
            self.accepted.end()
            await self._idle.wait()

    async def stop(self) -> bool:
        """End the feeds and the connections to the replicas, and release the replica set."""
        self._stopped = True
        if (trace := self.log.trace) is not None:
            self.log.trace = None  # it does not say that the replicas left: only the gateway stops
            await asyncio.to_thread(trace.close)
        self.log.wake()
        self._starting.cancel()
        for follower in list(self.followers.values()):
            await follower.stop()
        await self.session.close()
        await self.members.stop()
        return True

    def _add(self, member: Member) -> None:
        if self._roles:
            present = [one.member.role for one in self.followers.values() if not one.retired]
            member = replace(member, role=role_of_next(self._roles, present))
        self.followers[member.id] = Follower(self, member)

    def _remove(self, id_: str, why: str) -> None:
        if follower := self.followers.get(id_):
            follower.retire(why)
            self.log.wake()

    # Replicas

    @property
    def ready(self) -> list[str]:
        """The ids of the replicas that accept requests.

        If there is none, an ejected or a removed one is better than none, unless it is silent.
        """
        ready = [id_ for id_, follower in self.followers.items() if follower.ready]
        return ready or [id_ for id_, follower in self.followers.items() if follower.usable]

    def has_ready_beside(self, follower: Follower) -> bool:
        """Whether another replica accepts requests, of any role: it can do this one's work."""
        return any(one.ready for one in self.followers.values() if one is not follower)

    def ready_in(self, role: str) -> list[str]:
        """The ids of the replicas with a role that accept requests."""
        return [id_ for id_ in self.ready if self.followers[id_].member.role == role]

    @property
    def not_ready(self) -> str:
        """The reason why the gateway accepts no requests now; empty if it is ready."""
        if self.draining:
            return "the gateway is shutting down"
        if self.ready:
            return ""
        return what_is_missing(self) or "no replica has been started yet"

    @property
    def trace_error(self) -> str:
        """Why the gateway or a replica no longer writes its trace file; empty if none has failed."""
        reasons = {
            f"replica {id_}": follower.status.get("trace_error")
            for id_, follower in self.followers.items()
        }
        if self.log.trace is not None:
            reasons = {"gateway": self.log.trace.problem} | reasons
        return "; ".join(f"{where}: {reason}" for where, reason in reasons.items() if reason)

    def check_accepting(self) -> None:
        """Raise ApiError (503) while no requests are accepted."""
        if reason := self.not_ready:
            raise unavailable(reason, "shutdown" if self.draining else "no_replica")

    # Requests

    def next_request(self) -> int:
        """Return a new number for the log."""
        self._requests += 1
        return self._requests

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the drain wait for the block."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    def route(
        self,
        request: int,
        tokens: Sequence[int],
        label: str,
        without: Collection[str] = (),
        *,
        role: str,
        output: int = 0,
    ) -> Follower:
        """Choose a replica for a request, log the decision and return it. Raises ApiError (503).

        If no replica with this role is ready, another one does its work. The last `output` tokens are
        the client's already.
        """
        there = [id_ for id_ in self.ready if id_ not in without]
        among = [id_ for id_ in self.ready_in(role) if id_ in there]
        among = self._without_doubtful(among or there)
        return self._routed(request, tokens, label, among, output=output)

    def pin(self, request: int, label: str, without: Collection[str], *, output: int) -> Follower:
        """Choose the replica of a connection: the one with the least requests. Raises ApiError."""
        id_ = self.least_loaded(DECODE, without).member.id
        return self._routed(request, (), label, [id_], pinned=True, output=output)

    def _routed(
        self,
        request: int,
        tokens: Sequence[int],
        label: str,
        among: list[str],
        **how: Any,
    ) -> Follower:
        try:
            decision = self.dispatcher.route(request, tokens, label, self.now(), among=among, **how)
        except NoReplicaError as error:
            raise unavailable("no other replica can be reached", "no_replica") from error
        self.routed[decision.replica, decision.reason] += 1
        return self.followers[decision.replica]

    def _without_doubtful(self, ids: list[str]) -> list[str]:
        """Return those whose last signs of life have come, or all: new requests prefer them."""
        return [id_ for id_ in ids if not self.followers[id_].health.is_doubtful] or ids

    def hop_failed(
        self, request: int, replica: str, hop: Hop, error: LostError, *, remedy: Remedy, began: int
    ) -> None:
        """Log that a step on a request's way has failed, which began at `began`."""
        t = {"at": self.now(), "us": self.now() - began}
        if error.noticed != "refused" and replica in self.followers:
            self.followers[replica].health.failed()
        self.log.append(HopFailed(request, replica, hop, error.noticed, remedy, str(error), t))

    def least_loaded(self, role: str = "", without: Collection[str] = ()) -> Follower:
        """Return the ready replica with the fewest requests, preferably one with the role.

        It is one of `without` only if there is no other.

        Raises ApiError (503).
        """
        self.check_accepting()
        load, among = self.dispatcher.replicas, self.ready_in(role) or self.ready
        among = self._without_doubtful([id_ for id_ in among if id_ not in without] or among)
        return self.followers[min(among, key=lambda id_: load[id_].in_flight)]

    def named(self, id_: str) -> Follower:
        """Return the replica that a client names. Raises ApiError: 404, or 503 if it is not there."""
        follower = self.followers.get(id_)
        if follower is None:
            known = ", ".join(self.followers) or "none"
            raise ApiError(
                404,
                f"there is no replica {id_[:40]!r}: the replicas are {known}",
                param="replica",
                code="replica_not_found",
            )
        if not follower.joined:
            raise unavailable(f"replica {id_} cannot be reached now", "no_replica")
        return follower


def _stop_if_failed(starting: "asyncio.Task[None]") -> None:
    if not starting.cancelled() and (error := starting.exception()):
        logger.error("The replicas cannot be started: %s", error)
        signal.raise_signal(signal.SIGTERM)
