"""The cluster under test: three servers behind links, and a gateway over their addresses.

`Listed` starts and starts again the processes that faults have ended. It asks the servers themselves,
not the gateway, whether they are ready and what they hold.
"""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.chaos.network import Link
from server.load.client import ask
from server.process import BackgroundServer
from underglass import child

KEY = "chaos"
REPLICAS = 3
ROLES = "prefill=1,decode=2"
# Small caches are evicted during a run, and small batches let requests wait.
ENGINE = ("--max-kv-tokens", "4096", "--token-budget", "128", "--threads", "1")
_WINDOW = "2000000"  # events; nothing may leave the log before it is checked
_POLL = 0.1


class Replica:
    """A server that may be dead, at the address of its link."""

    def __init__(self, id_: str, directory: Path) -> None:
        self.id = id_
        self.link = Link()
        self.server: BackgroundServer | None = None
        self.starts = 0
        self._directory = directory

    async def start(self) -> None:
        """Start the server, and point the link at it."""
        self.starts += 1
        trace = self._directory / f"replica-{self.id}-{self.starts}.jsonl"
        command = child.python("underglass", "serve", "--port", "0", "--until-stdin-closes")
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
            for one in found["server"].children(recursive=True):
                if any("engine_child" in part for part in one.cmdline()):
                    found["engine"] = one
        return found

    async def health(self) -> dict[str, Any] | None:
        """Return what the server says about itself, or None if it does not answer."""
        if self.server is None or self.server.process.poll() is not None:
            return None
        try:
            async with asyncio.timeout(5):
                reply = await ask(self.server.url, "/health")
            return dict(reply.json()) if reply.status in (200, 503) else None
        except (OSError, TimeoutError, ValueError):
            return None

    async def stop(self) -> None:
        """End the processes, whatever state they are in."""
        for process in self.processes().values():
            with suppress(psutil.NoSuchProcess):
                process.resume()
                process.kill()
        if self.server is not None:
            await asyncio.to_thread(self.server.stop)


class Listed:
    """Three servers and a gateway with `--replica`."""

    kind = "list"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.replicas = [Replica(str(number), directory) for number in range(REPLICAS)]
        self.gateway: BackgroundServer | None = None
        self.url = ""
        self._roles = False

    async def start(self) -> None:
        """Start the servers."""
        await asyncio.gather(*(one.link.open() for one in self.replicas))
        await asyncio.gather(*(one.start() for one in self.replicas))

    @property
    def server_url(self) -> str:
        """The address of a server, without a link."""
        return next(one.server.url for one in self.replicas if one.server is not None)

    async def start_gateway(self, *, roles: bool) -> None:
        """Start a gateway with an empty log, and wait until all replicas have joined."""
        self._roles = roles
        self.url = ""
        await self.restart_gateway()
        await self.until_joined()

    async def restart_gateway(self) -> None:
        """Start a gateway; after the first time at the same address."""
        port = self.url.rpartition(":")[2] or "0"
        command = child.python("underglass", "serve", "--port", port, "--until-stdin-closes")
        command += ["--cluster-key", KEY, "--request-log", "off", "--log-window", _WINDOW]
        command += [part for one in self.replicas for part in ("--replica", one.link.url)]
        command += ["--roles", ROLES] if self._roles else []
        self.gateway = await asyncio.to_thread(BackgroundServer, command)
        self.url = self.gateway.url

    async def until_joined(self, seconds: float = 60.0) -> None:
        """Wait until the gateway has all replicas. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while True:
                with suppress(OSError, ValueError):
                    health = (await ask(self.url, "/health")).json()
                    ready = [one for one in health["replicas"].values() if one["status"] == "ok"]
                    if len(ready) == REPLICAS and (not self._roles or health["moving"]):
                        return
                await asyncio.sleep(_POLL)

    async def until_ready(self, replica: Replica, seconds: float = 60.0) -> None:
        """Wait until a server accepts requests. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while (health := await replica.health()) is None or health["status"] != "ok":
                await asyncio.sleep(_POLL)

    async def until_freed(self, seconds: float = 30.0) -> dict[str, Any]:
        """Wait until no replica has work or held KV; return what is left by then, by replica."""
        left: dict[str, Any] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while left := await self._left():
                    await asyncio.sleep(_POLL)
        return left

    async def _left(self) -> dict[str, Any]:
        told = {one.id: await one.health() for one in self.replicas}
        return {id_: health for id_, health in told.items() if health is None or _holds(health)}

    async def trace(self) -> bytes:
        """Return the cluster log."""
        return (await ask(self.url, "/trace")).body

    def signal_gateway(self, number: signal.Signals) -> None:
        """Send the gateway a signal."""
        assert self.gateway is not None
        self.gateway.process.send_signal(number)

    async def stop_gateway(self) -> None:
        """End the gateway."""
        if self.gateway is not None:
            self.gateway.process.send_signal(signal.SIGCONT)
            await asyncio.to_thread(self.gateway.stop)
            self.gateway = None

    def output(self) -> str:
        """What the gateway and the servers have printed."""
        running: Sequence[tuple[str, BackgroundServer | None]] = [
            ("gateway", self.gateway),
            *((f"replica {one.id}", one.server) for one in self.replicas),
        ]
        return "\n".join(f"--- {name}\n{one.output()}" for name, one in running if one is not None)

    async def stop(self) -> None:
        """End all processes."""
        await self.stop_gateway()
        await asyncio.gather(*(one.stop() for one in self.replicas))
        await asyncio.gather(*(one.link.close() for one in self.replicas))


def _holds(health: dict[str, Any]) -> bool:
    """Whether an engine has requests, or blocks that neither are free nor can be evicted."""
    blocks = health["blocks"]
    held = blocks["total"] - blocks["free"] - blocks["cached"]
    counts = ("waiting", "prefilling", "active", "pending_submit")
    return bool(held or any(health.get(name) for name in counts))
