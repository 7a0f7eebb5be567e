"""The cluster under test: three servers behind links, and a gateway over their addresses.

Its processes are started again after faults.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from benchmarks.chaos.network import Link
from server.load.client import ask
from server.process import BackgroundServer
from underglass import child

KEY = "chaos"
GATEWAY = "gateway"  # the target beside the replicas
REPLICAS = 3
ROLES = ("--roles", "prefill=1,decode=2")
# Shorter than the defaults, so that a held connection is given up while the run lasts, but longer than
# the pause between a stream's keep-alive comments.
DEADLINES = ("--deadline", "first_token=20", "--deadline", "stream=20")
# Small caches are evicted during a run, and small batches let requests wait.
ENGINE = ("--max-kv-tokens", "4096", "--token-budget", "128", "--threads", "1")
_WINDOW = "2000000"  # events; nothing may leave the log before it is checked
_POLL = 0.1
_JOINED_WITHIN = 60.0  # seconds in which all replicas must be there again


FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


class WallClock:
    """The wall clock of a process and its children. It can jump; the monotonic clock never does.

    jumps  whether it can: only then, and with FAKETIME, it is not the machine's
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jumps = False
        self.set(0)

    def set(self, seconds: int) -> None:
        """Let it be ahead of the machine's by so many seconds, within a second."""
        self._file.write_text(f"{seconds:+d}")

    def command(self, *command: str) -> list[str]:
        """Return a command that runs by this clock."""
        if not self.jumps:
            return list(command)
        preload = [f"LD_PRELOAD={FAKETIME}", f"FAKETIME_TIMESTAMP_FILE={self._file}"]
        return [
            "env",
            *preload,
            "FAKETIME_CACHE_DURATION=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            *command,
        ]


def _forget_clock(pid: int) -> None:
    """Remove what libfaketime leaves behind when its process is killed."""
    for file in Path("/dev/shm").glob(f"*faketime_*_{pid}"):
        file.unlink(missing_ok=True)


async def health_of(url: str) -> dict[str, Any] | None:
    """Return what a server says about itself, or None if it does not answer."""
    try:
        async with asyncio.timeout(5):
            reply = await ask(url, "/health")
        return dict(reply.json()) if reply.status in (200, 503) else None
    except (OSError, TimeoutError, ValueError):
        return None


def engine_of(server: psutil.Process) -> psutil.Process | None:
    """Return a server's engine process."""
    children = server.children(recursive=True)
    return next((one for one in children if "engine_child" in " ".join(one.cmdline())), None)


class Replica:
    """A server that may be dead, at the address of its link. `program` is its module and arguments."""

    def __init__(self, id_: str, directory: Path, *program: str) -> None:
        self.id = id_
        self._program = program or ("underglass",)
        self.clock = WallClock(directory / f"clock-{id_}")
        self.link = Link()
        self.server: BackgroundServer | None = None
        self.starts = 0
        self._directory = directory

    async def start(self) -> None:
        """Start the server, and point the link at it."""
        self.starts += 1
        trace = self._directory / f"replica-{self.id}-{self.starts}.jsonl"
        command = child.python(*self._program, "serve", "--port", "0", "--until-stdin-closes")
        command = self.clock.command(*command)
        command += [*ENGINE, "--cluster-key", KEY, "--request-log", "off", "--log-window", _WINDOW]
        command += ["--trace-file", str(trace)]
        self.server = await asyncio.to_thread(BackgroundServer, command)
        host, _, port = self.server.url.removeprefix("http://").partition(":")
        self.link.target = host, int(port)

    def processes(self) -> dict[str, psutil.Process]:
        """The running processes, by name: "server" and "engine"."""
        found = {}
        with suppress(psutil.NoSuchProcess):
            assert self.server is not None
            found["server"] = psutil.Process(self.server.process.pid)
            if engine := engine_of(found["server"]):
                found["engine"] = engine
        return found

    async def health(self) -> dict[str, Any] | None:
        """Return what the server says about itself, or None if it does not answer."""
        if self.server is None or self.server.process.poll() is not None:
            return None
        return await health_of(self.server.url)

    async def stop(self) -> None:
        """End the processes, whatever state they are in."""
        for process in self.processes().values():
            with suppress(psutil.NoSuchProcess):
                process.resume()
                process.kill()
        if self.server is not None:
            await asyncio.to_thread(self.server.stop)
            _forget_clock(self.server.process.pid)


class Cluster:
    """Three servers, and a gateway with `--replica`.

    The targets of faults are the replicas "0", "1", "2", and GATEWAY.

    stopped  the processes that a fault has stopped, by its target
    jumps    whether wall clocks can jump
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.replicas: list[Replica] = [Replica(str(one), directory) for one in range(REPLICAS)]
        self.jumps = False
        self.clock = WallClock(directory / "clock-gateway")
        self.stopped: dict[str, list[psutil.Process]] = {}
        self.gateway: BackgroundServer | None = None
        self.url = ""
        self._options: list[str] = []

    async def start(self) -> None:
        """Start the servers and their links."""
        for one in self.replicas:
            one.clock.jumps = self.jumps
        await asyncio.gather(*(one.link.open() for one in self.replicas))
        await asyncio.gather(*(one.start() for one in self.replicas))

    async def stop(self) -> None:
        """End all processes."""
        await self.stop_gateway()
        await asyncio.gather(*(one.stop() for one in self.replicas))
        await asyncio.gather(*(one.link.close() for one in self.replicas))

    def gateway_options(self) -> list[str]:
        """Return how the gateway finds its replicas."""
        addresses = [part for one in self.replicas for part in ("--replica", one.link.url)]
        return ["--cluster-key", KEY, *addresses]

    def processes(self, target: str) -> dict[str, psutil.Process]:
        """Return the running processes of a target, by name."""
        if target != GATEWAY:
            return self.replicas[int(target)].processes()
        return {} if self.gateway is None else {GATEWAY: psutil.Process(self.gateway.process.pid)}

    async def start_again(self, target: str) -> None:
        """Start what was killed."""
        if target == GATEWAY:
            await self.stop_gateway()
            await self.restart_gateway()
            return
        await self.replicas[int(target)].stop()
        await self.replicas[int(target)].start()

    async def until_works(self, target: str, seconds: float = _JOINED_WITHIN) -> None:
        """Wait until a target works again, which a server says itself. Raises TimeoutError."""
        if target == GATEWAY:
            await self.until_status("ok", "degraded", seconds=seconds)
            return
        async with asyncio.timeout(seconds):
            while not _is_ready(await self.replicas[int(target)].health()):
                await asyncio.sleep(_POLL)

    async def health(self) -> dict[str, dict[str, Any] | None]:
        """Return what each replica says about itself; None for one that does not answer."""
        return {one.id: await one.health() for one in self.replicas}

    def output(self) -> str:
        """What the processes have printed."""
        texts = [] if self.gateway is None else [f"--- gateway\n{self.gateway.output()}"]
        for one in self.replicas:
            if one.server is not None:
                texts.append(f"--- replica {one.id}\n{one.server.output()}")
        return "\n".join(texts)

    async def start_gateway(self, *options: str) -> None:
        """Start a gateway with an empty log, and wait until all replicas have joined."""
        self.url, self._options = "", list(options)
        self.clock.jumps = self.jumps
        self.clock.set(0)
        await self.restart_gateway()
        await self.until_status("ok")

    async def restart_gateway(self) -> None:
        """Start a gateway; after the first time at the same address."""
        port = self.url.rpartition(":")[2] or "0"
        command = child.python("underglass", "serve", "--port", port, "--until-stdin-closes")
        command = self.clock.command(*command)
        command += ["--request-log", "off", "--log-window", _WINDOW, *DEADLINES]
        command += [*self.gateway_options(), *self._options]
        self.gateway = await asyncio.to_thread(BackgroundServer, command)
        self.url = self.gateway.url

    async def until_status(self, *statuses: str, seconds: float = _JOINED_WITHIN) -> None:
        """Wait until the gateway is in a state, "ok" if all replicas serve. Raises TimeoutError."""
        health: dict[str, Any] | None = None
        try:
            async with asyncio.timeout(seconds):
                while (health := await health_of(self.url)) is None or health[
                    "status"
                ] not in statuses:
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            what = "no answer" if health is None else f"{health['status']}: {health['not_ready']}"
            raise TimeoutError(f"the gateway says {what}") from None

    async def until_freed(self, seconds: float = 30.0) -> dict[str, Any]:
        """Wait until no replica has work or held KV; return what is left by then, by replica."""
        left: dict[str, Any] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while left := {
                    id_: one for id_, one in (await self.health()).items() if _holds(one)
                }:
                    await asyncio.sleep(_POLL)
        return left

    async def trace(self) -> bytes:
        """Return the cluster log."""
        return (await ask(self.url, "/trace")).body

    async def stop_gateway(self) -> None:
        """End the gateway."""
        if self.gateway is not None:
            self.gateway.process.send_signal(signal.SIGCONT)
            await asyncio.to_thread(self.gateway.stop)
            _forget_clock(self.gateway.process.pid)
            self.gateway = None


def _is_ready(health: dict[str, Any] | None) -> bool:
    """Whether a server says that it accepts requests."""
    return health is not None and health["status"] == "ok"


def _holds(health: dict[str, Any] | None) -> bool:
    """Whether an engine has requests, or blocks that neither are free nor can be evicted."""
    if health is None:
        return True
    blocks = health["blocks"]
    held = blocks["total"] - blocks["free"] - blocks["cached"]
    counts = ("waiting", "prefilling", "active", "pending_submit")
    return bool(held or any(health.get(name) for name in counts))


@contextmanager
def alone() -> Iterator[str]:
    """Run one server without faults, and yield its URL."""
    command = child.python("underglass", "serve", "--port", "0", "--until-stdin-closes")
    with BackgroundServer([*command, *ENGINE, "--request-log", "off"]) as server:
        yield server.url


C = TypeVar("C", bound=Cluster)


@asynccontextmanager
async def running(cluster: C) -> AsyncIterator[C]:
    """Start what a cluster's runs share, and end all its processes after the block, or at a SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await cluster.start()
        yield cluster
    except asyncio.CancelledError:
        raise SystemExit("stopped") from None
    finally:
        await cluster.stop()
