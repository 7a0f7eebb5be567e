"""Clocks that drift, and replicas that are silent, in a gateway of this process."""

import asyncio
import signal
from collections.abc import Callable

from engine.events.cluster import ReplicaJoined, ReplicaLeft
from server.core.settings import ServerSettings
from server.gateway.follower import Times
from server.gateway.gateway import Gateway
from server.gateway.replica_set import Member, UrlSet
from tests.server.gateway.cluster import Serve


async def until(gateway: Gateway, wanted: Callable[[], object]) -> None:
    """Wait until the log has changed so that `wanted` is true."""
    while not wanted():
        assert await gateway.log.changed(60)


def happened(gateway: Gateway, kind: type) -> list[object]:
    return [event for event in gateway.log if isinstance(event, kind)]


def test_silent_replica_leaves_and_its_work_ends(serve: Serve) -> None:
    replica = serve()

    async def follow() -> tuple[str, str]:
        times = Times(between=0.01, unanswered=1.0)
        gateway = Gateway(UrlSet([replica.url]), "random", ServerSettings(), times)
        gateway.start()
        await until(gateway, lambda: gateway.ready)
        work = asyncio.create_task(wait(gateway))
        await asyncio.sleep(0)
        replica.process.send_signal(signal.SIGSTOP)  # like a machine that has lost its power
        await until(gateway, lambda: happened(gateway, ReplicaLeft))
        ended = await work
        replica.process.send_signal(signal.SIGCONT)
        await until(gateway, lambda: gateway.ready)
        await gateway.stop()
        return ended, happened(gateway, ReplicaLeft)[0].why  # type: ignore[attr-defined]

    async def wait(gateway: Gateway) -> str:
        try:
            async with gateway.followers["0"].work.block():
                await asyncio.Event().wait()
        except TimeoutError:
            return "ended"
        return ""

    assert asyncio.run(follow()) == ("ended", "no answer within 1 s")


def test_clock_that_has_drifted_is_logged_again(serve: Serve) -> None:
    replica = serve()

    async def follow() -> tuple[int, int]:
        times = Times(between=0.01)
        gateway = Gateway(UrlSet([replica.url]), "random", ServerSettings(), times)
        gateway.start()
        await until(gateway, lambda: gateway.ready)
        own = gateway.now
        gateway.now = lambda: own() + 5_000_000  # type: ignore[method-assign] # five seconds
        await until(gateway, lambda: len(happened(gateway, ReplicaJoined)) > 1)
        await gateway.stop()
        before, after = happened(gateway, ReplicaJoined)[:2]
        return before.t["offset"], after.t["offset"]  # type: ignore[attr-defined]

    before, after = asyncio.run(follow())
    assert abs(after - before - 5_000_000) < 1_000_000


async def test_removed_member_gets_no_requests_but_may_finish(serve: Serve) -> None:
    replica = serve()

    gateway = Gateway(members := Announced(), "random", ServerSettings())
    gateway.start()
    await asyncio.sleep(0)
    members.add(Member("a", replica.url))
    await until(gateway, lambda: gateway.ready)
    members.remove("a", "scaled down")
    states = [bool(gateway.ready), gateway.followers["a"].joined]
    await asyncio.to_thread(replica.stop)
    await until(gateway, lambda: happened(gateway, ReplicaLeft))
    left = happened(gateway, ReplicaLeft)[0]
    states.append(left.why == "scaled down")  # type: ignore[attr-defined]
    states.append(not gateway.followers)
    await gateway.stop()
    assert states == [False, True, True, True]


class Announced:
    """A replica set whose members come and go as a test says."""

    async def start(
        self, add: Callable[[Member], None], remove: Callable[[str, str], None]
    ) -> None:
        self.add, self.remove = add, remove

    async def stop(self) -> None:
        pass
