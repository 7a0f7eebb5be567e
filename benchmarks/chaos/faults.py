"""The faults of a chaos run: what each does, to what, and how it heals.

A fault strikes at a time and heals some seconds later. Both are drawn before the run, so that a seed
repeats it. Faults of one target follow each other; those of different targets may overlap, but one
replica is spared in each run, because a cluster without any replica answers nothing.

The wall clock jumps with `--only jump-clock`, if libfaketime is installed. The monotonic clock jumps,
from a process's point of view, when it sleeps.
"""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from benchmarks.chaos.cluster import GATEWAY, Cluster

REPLICA = "replica"
Act = Callable[[Cluster, str], Awaitable[None]]  # of a cluster and a target


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
    """A fault of a run. Times are seconds since the run began; a replica's `target` is its number."""

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


def _send(number: signal.Signals, *names: str) -> Act:
    async def strike(cluster: Cluster, target: str) -> None:
        _signal([one for name, one in cluster.processes(target).items() if name in names], number)

    return strike


def _stop(*names: str) -> Act:
    async def strike(cluster: Cluster, target: str) -> None:
        found = [one for name, one in cluster.processes(target).items() if name in names]
        cluster.stopped[target] = found
        _signal(found, signal.SIGSTOP)

    return strike


async def _resume(cluster: Cluster, target: str) -> None:
    """Let the processes run on that were stopped, and not those that have taken their place."""
    _signal(cluster.stopped.pop(target, []), signal.SIGCONT)


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.send_signal(number)


async def _start_again(cluster: Cluster, target: str) -> None:
    await cluster.start_again(target)


async def _start_after_drain(cluster: Cluster, target: str) -> None:
    server = cluster.replicas[int(target)].server
    assert server is not None
    await asyncio.to_thread(server.stop)  # it ends when its requests have
    await cluster.start_again(target)


async def _wait_for_engine(cluster: Cluster, target: str) -> None:
    """The server starts its engine again, but only once a minute."""
    with suppress(TimeoutError):
        await cluster.until_works(target, 20.0)
        return
    await cluster.start_again(target)


async def _hold(cluster: Cluster, target: str) -> None:
    cluster.replicas[int(target)].link.hold()


async def _hold_some(cluster: Cluster, target: str) -> None:
    cluster.replicas[int(target)].link.hold(every=3)


async def _slow(cluster: Cluster, target: str) -> None:
    cluster.replicas[int(target)].link.slow(20_000)


async def _heal_link(cluster: Cluster, target: str) -> None:
    cluster.replicas[int(target)].link.heal()


async def _cut(cluster: Cluster, target: str) -> None:
    await cluster.replicas[int(target)].link.close()


async def _open_again(cluster: Cluster, target: str) -> None:
    await cluster.replicas[int(target)].link.open()


async def _jump(cluster: Cluster, target: str) -> None:
    """By an hour, as when a clock is set: to the past for odd replicas and the gateway."""
    clock = cluster.clock if target == GATEWAY else cluster.replicas[int(target)].clock
    clock.set(3600 if target in ("0", "2") else -3600)


async def _jump_back(cluster: Cluster, target: str) -> None:
    (cluster.clock if target == GATEWAY else cluster.replicas[int(target)].clock).set(0)


async def _fill_disk(cluster: Cluster, target: str) -> None:
    """No file of the processes may grow beyond 1 KB: writing fails, as on a full disk."""
    _limit_files(cluster.processes(target), 1024)


async def _free_disk(cluster: Cluster, target: str) -> None:
    _limit_files(cluster.processes(target), -1)


def _limit_files(processes: dict[str, psutil.Process], size: int) -> None:
    for one in processes.values():
        with suppress(psutil.NoSuchProcess):
            one.rlimit(psutil.RLIMIT_FSIZE, (size, -1))


CLOCKS = ("jump-clock", "jump-gateway-clock")  # they need libfaketime
FULL_GATEWAY_DISK = "full-gateway-disk"
_KILL, _TERM = signal.SIGKILL, signal.SIGTERM
KINDS: dict[str, Kind] = {
    "kill-server": Kind(REPLICA, (0, 3), _send(_KILL, "server"), _start_again),
    "drain-server": Kind(REPLICA, (1, 4), _send(_TERM, "server"), _start_after_drain),
    "kill-engine": Kind(REPLICA, (0, 1), _send(_KILL, "engine"), _wait_for_engine),
    "stop-server": Kind(REPLICA, (1, 8), _stop("server"), _resume),
    "stop-engine": Kind(REPLICA, (1, 8), _stop("engine"), _resume),
    # A machine that sleeps: when it wakes up, its clock has jumped.
    "sleep": Kind(REPLICA, (1, 8), _stop("server", "engine"), _resume),
    "hold-connections": Kind(REPLICA, (1, 8), _hold, _heal_link),
    "hold-some": Kind(REPLICA, (1, 25), _hold_some, _heal_link),
    "cut-connections": Kind(REPLICA, (0, 4), _cut, _open_again),
    "slow-connections": Kind(REPLICA, (2, 8), _slow, _heal_link),
    "full-disk": Kind(REPLICA, (2, 6), _fill_disk, _free_disk),
    "jump-clock": Kind(REPLICA, (2, 6), _jump, _jump_back),
    "jump-gateway-clock": Kind(GATEWAY, (2, 6), _jump, _jump_back),
    FULL_GATEWAY_DISK: Kind(GATEWAY, (2, 6), _fill_disk, _free_disk),
    "stop-gateway": Kind(GATEWAY, (0.5, 3), _stop("gateway"), _resume),
    "kill-gateway": Kind(GATEWAY, (0, 1), _send(_KILL, "gateway"), _start_again),
}


def draw(
    dice: random.Random, count: int, seconds: float, names: Sequence[str], *, spared: int
) -> list[Fault]:
    """Draw faults of a run of `seconds` seconds, at most one of them of the gateway.

    The replica `spared` has none.
    """
    faults = list[Fault]()
    for _ in range(count):
        has_one = any(one.target == GATEWAY for one in faults)
        allowed = [one for one in names if not (has_one and KINDS[one].target == GATEWAY)]
        name = dice.choice(allowed or list(names))
        kind = KINDS[name]
        target = kind.target
        if target == REPLICA:
            target = str(dice.choice([number for number in range(3) if number != spared]))
        at, lasts = dice.uniform(1, seconds * 0.9), dice.uniform(*kind.lasts)
        faults.append(Fault(round(at, 2), name, target, round(lasts, 2)))
    return sorted(faults, key=lambda one: one.at)


async def inject(cluster: Cluster, faults: Sequence[Fault], began: float) -> list[Struck]:
    """Let all faults strike and heal; return what happened. The run began at `began`."""
    by_target: dict[str, list[Fault]] = {}
    for fault in faults:
        by_target.setdefault(fault.target, []).append(fault)
    struck = await asyncio.gather(*(_in_turn(cluster, its, began) for its in by_target.values()))
    return sorted((one for its in struck for one in its), key=lambda one: one.at)


async def _in_turn(cluster: Cluster, faults: Sequence[Fault], began: float) -> list[Struck]:
    struck = list[Struck]()

    def now() -> float:
        return time.perf_counter() - began

    for fault in faults:
        await asyncio.sleep(max(0.0, fault.at - now()))
        kind, one = KINDS[fault.name], Struck(fault, now())
        await kind.strike(cluster, fault.target)
        await asyncio.sleep(fault.lasts)
        one.healed = now()
        try:
            await kind.heal(cluster, fault.target)
            await cluster.until_works(fault.target)
        except (TimeoutError, RuntimeError, OSError) as error:
            one.error = f"{type(error).__name__}: {error}"
        one.works = now()
        struck.append(one)
    return struck
