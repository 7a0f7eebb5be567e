"""Replicas that are present and do not answer get no requests, until they answer again."""

import asyncio
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from engine.cluster.events import ReplicaEjected, ReplicaLeft, ReplicaReturned
from engine.core.log.vocabulary import ScheduledRow, StepFinished, StepScheduled, TokenRow
from server.gateway.ejection import Health
from server.gateway.failures import Deadlines
from server.gateway.follower import Follower
from server.gateway.replica_set import UrlSet
from server.gateway.upstream import LostError, lost
from tests.server.gateway.cluster import happened, started, until_in
from tests.server.harness import completed


async def work(follower: Follower) -> None:
    async with lost(follower):
        await asyncio.Event().wait()


async def test_a_silent_replica_is_ejected_and_returns(serve):
    servers = [serve(), serve()]
    deadlines = Deadlines(beat=0.05, silent=1.0, gone=1000.0)
    async with started(UrlSet([one.url for one in servers]), deadlines=deadlines) as gateway:
        await until_in(gateway, lambda: len(gateway.ready) == 2)
        working = asyncio.create_task(work(gateway.followers["0"]))
        await asyncio.sleep(0)
        for _ in range(7):  # it misses as many beats, and is not silent for long enough yet
            gateway.followers["0"].health.beat()
        assert {gateway.route(2, [], "", role="").member.id for _ in range(9)} == {"1"}
        assert gateway.least_loaded().member.id == "1", "although it has all requests"
        servers[0].process.send_signal(signal.SIGSTOP)
        await until_in(gateway, lambda: happened(gateway, ReplicaEjected))
        for task in (working, work(gateway.followers["0"])):  # what waits, and what comes later
            with pytest.raises(LostError) as error:
                await task
            assert error.value.noticed == "silent"
        assert gateway.ready == ["1"]
        head = gateway.log.keyframes()
        assert [one.replica for one in head if isinstance(one, ReplicaEjected)] == ["0"]
        servers[0].process.send_signal(signal.SIGCONT)
        await until_in(gateway, lambda: happened(gateway, ReplicaReturned))
        assert gateway.ready == ["0", "1"]
        gateway.dispatcher.route(1, [], "", gateway.now(), among=["0"])
        assert gateway.ready == ["1"], "half-open: one request at a time"
        await asyncio.to_thread(completed, servers[0].url)
        await until_in(gateway, lambda: len(happened(gateway, ReplicaReturned)) == 2)
        assert gateway.ready == ["0", "1"]
        assert [one.half_open for one in happened(gateway, ReplicaReturned)] == [True, False]


async def test_the_last_replica_is_not_ejected_but_leaves_when_it_is_gone(serve):
    replica, deadlines = serve(), Deadlines(beat=0.05, silent=0.1, gone=1.0)
    async with started(UrlSet([replica.url]), deadlines=deadlines) as gateway:
        await until_in(gateway, lambda: gateway.ready)
        working = asyncio.create_task(work(gateway.followers["0"]))
        await asyncio.sleep(0)
        replica.process.send_signal(signal.SIGSTOP)  # like a machine that has lost its power
        await until_in(gateway, lambda: happened(gateway, ReplicaLeft))
        with pytest.raises(LostError):
            await working
        replica.process.send_signal(signal.SIGCONT)
        await until_in(gateway, lambda: gateway.ready)
        assert happened(gateway, ReplicaLeft)[0].why == "no sign of life for 1 s"
        assert not happened(gateway, ReplicaEjected)


STEP = StepFinished([TokenRow(1, [1], [""])], 1, t={"start": 0, "end": 10_000_000})


def running(tokens: int, *, paused: bool = False) -> Any:
    """The state of an engine that is to compute so many tokens of a request."""
    request = SimpleNamespace(tokens=[0] * tokens, num_computed_tokens=0)
    has = {"running": [1], "waiting": [], "requests": {1: request}, "paused": paused}
    return SimpleNamespace(settings={"token_budget": 9}, **has)


@pytest.fixture
def health() -> Health:
    """A replica with a step of ten seconds for one token, and one for ten."""
    health = Health(Deadlines(beat=1, silent=3))
    for tokens in (1, 10):
        health.event(StepScheduled([ScheduledRow(1, 0, tokens)], []))
        health.event(STEP)
    return health


@pytest.mark.parametrize(("tokens", "beats"), [(1, 88), (2, 96), (100, 152)])
def test_a_step_that_takes_several_times_what_it_should_is_stuck(health, tokens, beats):
    for beat in range(1, beats + 1):
        health.heard()
        health.beat()
        assert (health.current(running(tokens)) is not None) == (beat == beats)
    assert health.current(running(tokens, paused=True)) is None


def test_a_replica_fails_if_no_token_comes_between_its_failures(health):
    for _ in range(2):
        health.failed()
        health.failed()
        assert health.current(running(1)) is None
        health.event(STEP)
    for _ in range(3):
        health.failed()
    fault, pauses = health.current(running(1)), []
    for _ in range(3):
        health.eject(fault)
        for _ in range(3):
            health.failed()  # a request that the ejection ends
        pauses.append(0)
        while not health.may_return(running(1)):
            health.heard()
            health.beat()
            health.event(StepScheduled([], []))
            pauses[-1] += 1
        health.give_back()
        health.failed()
        assert health.current(running(1)) is not None, "half-open: one failure is enough"
    assert pauses == [2, 4, 8]
