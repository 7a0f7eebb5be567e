"""The faults of a chaos run: what each does, to what, and how it heals.

A fault strikes at a time and heals some seconds later. Both are drawn before the run, so that a seed
repeats it. Faults of one target follow each other; those of different targets may overlap, but one
replica is spared in each run, because a cluster without any replica answers nothing.
"""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.chaos.cluster import Listed, Replica

GATEWAY = "gateway"
Act = Callable[[Listed, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    target  "replica" or "gateway"
    lasts   the least and the most seconds until it heals
    heal    ends it; the harness then waits until the target works again
    """

    target: str
    lasts: tuple[float, float]
    strike: Act
    heal: Act


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a run. Times are seconds since the run began; `target` is a replica's id."""

    at: float
    name: str
    target: str
    lasts: float

    def __str__(self) -> str:
        return f"{self.at:.1f} s {self.name} {self.target} for {self.lasts:.1f} s"


@dataclass(slots=True)
class Struck:
    """A fault that has struck: when, when it healed, and when the target worked again, in seconds.

    error  why the target did not work again, or ""
    """

    fault: Fault
    at: float
    healed: float = 0.0
    works: float = 0.0
    error: str = ""


def _to_processes(number: signal.Signals, *names: str) -> Act:
    async def strike(_cluster: Listed, replica: Replica) -> None:
        for name, process in replica.processes().items():
            if name in names:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    return strike


def _to_gateway(number: signal.Signals) -> Act:
    async def strike(cluster: Listed, _target: object) -> None:
        cluster.signal_gateway(number)

    return strike


async def _start_again(_cluster: Listed, replica: Replica) -> None:
    await replica.stop()
    await replica.start()


async def _start_after_drain(_cluster: Listed, replica: Replica) -> None:
    assert replica.server is not None
    await asyncio.to_thread(replica.server.stop)  # it ends when its requests have
    await replica.start()


async def _start_gateway_again(cluster: Listed, _target: object) -> None:
    await cluster.stop_gateway()
    await cluster.restart_gateway()


async def _wait_for_engine(cluster: Listed, replica: Replica) -> None:
    """The server starts its engine again, but only once; later, start the server again."""
    with suppress(TimeoutError):
        await cluster.until_ready(replica, 30.0)
        return
    await _start_again(cluster, replica)


async def _hold(_cluster: Listed, replica: Replica) -> None:
    replica.link.hold()


async def _hold_some(_cluster: Listed, replica: Replica) -> None:
    replica.link.hold(every=3)


async def _slow(_cluster: Listed, replica: Replica) -> None:
    replica.link.slow(20_000)


async def _cut(_cluster: Listed, replica: Replica) -> None:
    await replica.link.close()


async def _join_again(_cluster: Listed, replica: Replica) -> None:
    await replica.link.open()


async def _heal_link(_cluster: Listed, replica: Replica) -> None:
    replica.link.heal()


async def _fill_disk(_cluster: Listed, replica: Replica) -> None:
    """No file of the replica's processes may grow beyond 1 KB: writing fails, as on a full disk."""
    _limit_files(replica, 1024)


async def _free_disk(_cluster: Listed, replica: Replica) -> None:
    _limit_files(replica, -1)


def _limit_files(replica: Replica, size: int) -> None:
    for process in replica.processes().values():
        process.rlimit(psutil.RLIMIT_FSIZE, (size, -1))


_STOP, _CONT, _KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL
_resume = _to_processes(_CONT, "server", "engine")
KINDS: dict[str, Kind] = {
    "kill-server": Kind("replica", (0, 3), _to_processes(_KILL, "server"), _start_again),
    "drain-server": Kind(
        "replica", (1, 4), _to_processes(signal.SIGTERM, "server"), _start_after_drain
    ),
    "kill-engine": Kind("replica", (0, 1), _to_processes(_KILL, "engine"), _wait_for_engine),
    "stop-server": Kind("replica", (1, 8), _to_processes(_STOP, "server"), _resume),
    "stop-engine": Kind("replica", (1, 8), _to_processes(_STOP, "engine"), _resume),
    # A machine that sleeps: when it wakes up, its clock has jumped.
    "sleep": Kind("replica", (1, 8), _to_processes(_STOP, "server", "engine"), _resume),
    "hold-connections": Kind("replica", (1, 8), _hold, _heal_link),
    "hold-some": Kind("replica", (1, 8), _hold_some, _heal_link),
    "cut-connections": Kind("replica", (0, 4), _cut, _join_again),
    "slow-connections": Kind("replica", (2, 8), _slow, _heal_link),
    "full-disk": Kind("replica", (2, 6), _fill_disk, _free_disk),
    "stop-gateway": Kind(GATEWAY, (0.5, 3), _to_gateway(_STOP), _to_gateway(_CONT)),
    "kill-gateway": Kind(GATEWAY, (0, 1), _to_gateway(_KILL), _start_gateway_again),
}


def draw(dice: random.Random, count: int, seconds: float, names: Sequence[str]) -> list[Fault]:
    """Draw faults of a run of `seconds` seconds; the gateway has at most one."""
    spared = dice.randrange(3)
    faults = list[Fault]()
    for _ in range(count):
        allowed = [
            name
            for name in names
            if KINDS[name].target != GATEWAY or not any(one.target == GATEWAY for one in faults)
        ]
        name = dice.choice(allowed)
        kind = KINDS[name]
        target = GATEWAY
        if kind.target != GATEWAY:
            target = str(dice.choice([number for number in range(3) if number != spared]))
        at, lasts = dice.uniform(1, seconds * 0.9), dice.uniform(*kind.lasts)
        faults.append(Fault(round(at, 2), name, target, round(lasts, 2)))
    return sorted(faults, key=lambda one: one.at)


async def inject(cluster: Listed, faults: Sequence[Fault], began: float) -> list[Struck]:
    """Let all faults strike and heal; return what happened. The run began at `began`."""
    by_target: dict[str, list[Fault]] = {}
    for fault in faults:
        by_target.setdefault(fault.target, []).append(fault)
    struck = await asyncio.gather(*(_in_turn(cluster, its, began) for its in by_target.values()))
    return sorted((one for its in struck for one in its), key=lambda one: one.at)


async def _in_turn(cluster: Listed, faults: Sequence[Fault], began: float) -> list[Struck]:
    struck = list[Struck]()

    def now() -> float:
        return time.perf_counter() - began

    for fault in faults:
        await asyncio.sleep(max(0.0, fault.at - now()))
        kind, one = KINDS[fault.name], Struck(fault, now())
        target = None if fault.target == GATEWAY else cluster.replicas[int(fault.target)]
        await kind.strike(cluster, target)
        await asyncio.sleep(fault.lasts)
        one.healed = now()
        try:
            await kind.heal(cluster, target)
            if target is not None:
                await cluster.until_ready(target)
            else:
                await cluster.until_joined()
        except (TimeoutError, RuntimeError, OSError) as error:
            one.error = f"{type(error).__name__}: {error}"
        one.works = now()
        struck.append(one)
    return struck
