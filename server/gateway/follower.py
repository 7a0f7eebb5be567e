"""Follow one replica: its log, its clock, and whether it can be reached.

One connection to the replica's /events is also the sign that it is alive: when it breaks and cannot be
opened again at once, the replica has left. Until it answers again, the follower keeps trying, with
pauses that grow. On this connection the replica gives a sign of life at each beat. When it misses
several beats, it is ejected (`ejection.py`), and after some more, it has left: a machine that has
vanished closes no connection.

Clocks: the replica is asked for its time several times. The answer with the shortest round trip is off
by at most half of it (Cristian, Distributed Computing 3, 1989).
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import aiohttp
import msgspec

from engine.cluster.events import ReplicaEjected, ReplicaJoined, ReplicaReturned
from engine.core.log.vocabulary import AnyEvent, Event, Keyframe, RunStarted, StepFinished
from server.api.live import BEAT_HEADER
from server.gateway.ejection import Health
from server.gateway.replica_set import Member
from server.gateway.upstream import Scopes, error_message, reason

if TYPE_CHECKING:
    from server.gateway.gateway import Gateway

logger = logging.getLogger("underglass")

PINGS = 8
# A connection that broke sooner than this is not opened again at once, because it would break again.
_SHORT_SECONDS = 1.0

Problem = Literal["", "unreachable", "ejected", "not_ready"]

_decode = msgspec.json.Decoder(AnyEvent).decode


@dataclass(frozen=True, slots=True)
class Times:
    """How often a replica is asked for its time, and when the gateway tries again, in seconds.

    between      from one alignment to the next
    first_pause  before the next attempt to reach it; each further pause is twice as long
    last_pause   the longest pause
    """

    between: float = 5.0
    first_pause: float = 0.1
    last_pause: float = 2.0


class UnreachableError(Exception):
    """The replica cannot be followed. The message says why."""


class Follower:
    """Follows `member` until it is stopped, and tells the gateway.

    status   the replica's latest `status` event: whether it is paused, why it accepts no requests
    joined   whether the log says that it is present
    retired  why no more requests are routed to it, or ""
    since    when `problem` was last solved or got another state
    run      names the run of its engine that is followed
    worked_at  when its last step was reported, by the event loop's clock
    health   says when it is ejected
    work     blocks that need the replica; they end when it leaves
    """

    def __init__(self, gateway: "Gateway", member: Member) -> None:
        self.member = member
        self.status: dict[str, Any] = {}
        self.joined = False
        self._gateway = gateway
        self._times = gateway.times
        self._offset = self._rtt = 0
        self.run = self._last_id = ""  # the run that is followed, and its last event received
        self.worked_at = 0.0
        self.retired = ""
        self.health = Health(gateway.deadlines)
        self._gone = "it has not answered yet"
        self._state, self.since = "unreachable", datetime.now(UTC)
        self.work = Scopes()
        self._task = asyncio.create_task(self._follow_forever())

    def retire(self, why: str) -> None:
        """Route no more requests to the replica, and do not wait for it once its connection ends."""
        self.retired = why
        if not self.joined:
            self._task.cancel()
            del self._gateway.followers[self.member.id]

    async def stop(self) -> None:
        """Stop following, and take the replica out of the log."""
        self._task.cancel()
        await asyncio.wait({self._task})
        self._leave("the gateway has stopped")

    @property
    def ready(self) -> bool:
        """Whether the replica accepts requests; if it is half-open, one at a time."""
        return not self.retired and not self.problem[0]

    @property
    def usable(self) -> bool:
        """Whether the replica may accept requests if no replica is ready."""
        if self.problem[0] not in ("", "ejected"):
            return False
        return self.health.ejection is None or self.health.ejection.noticed != "silent"

    @property
    def ejected(self) -> str:
        """Why the replica gets no requests although it is present, or ""."""
        if self.health.ejection is not None:
            return self.health.ejection.why
        if self.health.half_open and self._gateway.dispatcher.replicas[self.member.id].in_flight:
            return "it has returned, and a request shows whether it works"
        return ""

    @property
    def problem(self) -> tuple[Problem, str]:
        """Why the replica can accept no requests, as a state and in words; empty if it can."""
        if not self.joined:
            return "unreachable", self._gone
        if self.ejected:
            return "ejected", self.ejected
        reason = self.status.get("not_ready", "")
        return ("not_ready" if reason else ""), reason

    def changed(self) -> None:
        """Note the time if `problem` has another state than before; wake what waits for a replica."""
        self._gateway.changes.wake()
        if self._state != (state := self.problem[0]):
            self._state, self.since = state, datetime.now(UTC)

    async def _follow_forever(self) -> None:
        loop, where = asyncio.get_running_loop(), f"replica {self.member.id} at {self.member.url}"
        pause = self._times.first_pause
        while True:
            opened = loop.time()
            try:
                await self._follow()
                why = "it closed the connection"
            except (aiohttp.ClientError, OSError, UnreachableError) as error:
                why = reason(error)
                if isinstance(error, TimeoutError):
                    why = f"no sign of life for {self._gateway.deadlines.gone:g} s"
                elif self.joined and loop.time() - opened > _SHORT_SECONDS:
                    continue  # perhaps only this connection is broken
            except Exception as error:  # a bug here or in a router must not stop the other replicas
                logger.exception("%s cannot be followed", where)
                why = f"its log cannot be followed: {type(error).__name__}"
            if self.retired:
                self._leave(self.retired)
                del self._gateway.followers[self.member.id]
                return
            if self.joined or pause == self._times.first_pause:
                logger.warning("Waiting for %s: %s", where, why)
            pause = self._times.first_pause if self.joined else pause
            self._leave(why)
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._times.last_pause)

    async def _follow(self) -> None:
        """Follow the replica until the connection breaks. Raises TimeoutError if it does not answer."""
        gateway = self._gateway
        headers = {BEAT_HEADER: f"{gateway.deadlines.beat:g}"}
        if self.joined:
            headers["last-event-id"] = self._last_id
        else:
            self.health = Health(gateway.deadlines)
        async with asyncio.timeout(None) as feed:
            watching = asyncio.create_task(self._watch(feed))
            aligning = asyncio.create_task(self._keep_aligned())
            try:
                url = f"{self.member.url}/events"
                async with gateway.session.get(url, headers=headers) as response:
                    if response.status != 200:
                        raise UnreachableError(await error_message(response))
                    async for blocks in _blocks(response.content):
                        self.health.heard()
                        for block in blocks:
                            await self._take(block)
            finally:
                watching.cancel()
                aligning.cancel()

    async def _watch(self, feed: asyncio.Timeout) -> None:
        """Eject a replica that is not well, and let it return; end `feed` when it is gone."""
        gateway, id_ = self._gateway, self.member.id
        while True:
            await asyncio.sleep(gateway.deadlines.beat)
            self.health.beat()
            if self.health.silence >= gateway.deadlines.gone:
                feed.reschedule(0)
            if not self.joined:
                continue
            health, state = self.health, gateway.log.state.states.get(id_)
            if health.ejection is not None:
                if health.may_return(state):
                    health.give_back()
                    self._log_return()
            elif (fault := health.current(state)) and gateway.has_ready_beside(self):
                health.eject(fault)
                self.changed()
                logger.warning("Replica %s is ejected: %s", id_, fault.why)
                gateway.log.append(ReplicaEjected(id_, fault.why, {"at": gateway.now()}))
                self.work.end()

    def _log_return(self) -> None:
        self.changed()
        id_, half_open = self.member.id, self.health.half_open
        logger.info("Replica %s has returned%s", id_, ", half-open" if half_open else "")
        self._gateway.log.append(ReplicaReturned(id_, half_open, {"at": self._gateway.now()}))

    async def _keep_aligned(self) -> None:
        """Ask for the replica's time now and then."""
        while True:
            await asyncio.sleep(self._times.between)
            if not self.joined:
                continue
            try:
                offset, rtt = await self._clock()
            except (aiohttp.ClientError, OSError, UnreachableError):
                continue
            if abs(offset - self._offset) > (rtt + self._rtt) / 2:
                self._offset, self._rtt = offset, rtt  # the clocks have drifted apart
                self._gateway.log.append(self._joined_event())

    async def _clock(self) -> tuple[int, int]:
        """Return the offset of the replica's clock and the round trip that it was measured with, in us.

        Cluster time is the replica's time plus the offset.
        """
        now, best = self._gateway.now, (0, 1 << 62)
        for _ in range(PINGS):
            sent = now()
            async with self._gateway.session.get(f"{self.member.url}/clock") as response:
                if response.status != 200:
                    raise UnreachableError(await error_message(response))
                theirs = int(await response.read())
            received = now()
            if received - sent < best[1]:
                best = (sent + received) // 2 - theirs, received - sent
        return best

    async def _take(self, block: bytes) -> None:
        """Handle one server-sent event of the replica."""
        head, _, data = block.partition(b"\ndata: ")
        if head.startswith(b"id: "):
            id_, event = head[4:].decode(), _decode(data)
            run, _, seq = id_.rpartition(":")
            if not self.joined or run != self.run:
                await self._join(run, event)
            self._last_id = id_
            if type(event) is StepFinished:
                self.worked_at = asyncio.get_running_loop().time()
            gateway = self._gateway
            gateway.dispatcher.event(self.member.id, int(seq), event, gateway.now())
            if self.member.role == "decode":
                gateway.mover.event(self.member.id, event)
            if self.health.event(event):
                self._log_return()
        elif head == b"event: status":
            self.status = msgspec.json.decode(data)
            self.changed()
            self._gateway.log.wake()

    async def _join(self, run: str, event: Event) -> None:
        """Make the replica available; its first event is `event`."""
        if self.joined:  # the replica has already told its clients
            self._leave("its engine was restarted", gone=False)
        self._offset, self._rtt = await self._clock()
        assert isinstance(event, RunStarted | Keyframe), "a feed begins with one of them"
        settings = event.state.settings if isinstance(event, Keyframe) else event.settings
        gateway, member = self._gateway, self.member
        gateway.dispatcher.join(
            member.id,
            settings["block_size"],
            gateway.now(),
            url=member.url,
            role=member.role,
            run=run,
            offset=self._offset,
            rtt=self._rtt,
        )
        self.run, self.joined, self.health = run, True, Health(gateway.deadlines)
        self.changed()
        logger.info("Replica %s at %s has joined", member.id, member.url)

    def _joined_event(self) -> ReplicaJoined:
        t = {"at": self._gateway.now(), "offset": self._offset, "rtt": self._rtt}
        return ReplicaJoined(self.member.id, self.member.url, self.member.role, self.run, t)

    def _leave(self, why: str, *, gone: bool = True) -> None:
        """Take the replica out of the log; if it is gone, its requests end here."""
        self._gone = why
        if not self.joined:
            return
        self.joined, self.status = False, {}
        self.changed()
        self._gateway.dispatcher.leave(self.member.id, why, self._gateway.now())
        if gone:
            self.work.end()


async def _blocks(content: aiohttp.StreamReader) -> AsyncIterator[list[bytes]]:
    """Yield the events of an event stream as they arrive, without the blank lines between them."""
    rest = b""
    while data := await content.readany():
        *whole, rest = (rest + data).split(b"\n\n")
        yield whole
