"""Three replicas on Ray, two of them on a second machine: a raylet at a loopback address of its own.

Ray and the command start again what was killed, apart from the second machine and the command itself.
The gateway reaches the replicas directly, so there are no links between them.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.chaos.cluster import (
    CONTROLLER,
    ENGINE,
    GATEWAY,
    KEY,
    MACHINE,
    REPLICAS,
    Cluster,
    engine_of,
    health_of,
)
from server.gateway.ray_cluster import hide_slow_import
from tests.server.ray.cluster import Machine, free_port, servers_below

# 127.0.0.1 would not do: Ray replaces it by the host's own address.
_HEAD, _SECOND = "127.0.0.3", "127.0.0.2"


class OnRay(Cluster):
    """See the module. A replica's number is its place among the URLs: the last one is on the head."""

    kind = "ray"
    spared = REPLICAS - 1  # the others are on the machine that faults can take
    joined_within = 180.0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._machines: dict[str, Machine] = {}

    async def start(self) -> None:
        """Start the machines."""
        token = self.directory / "token"
        token.touch(0o600)
        token.write_text("0123456789abcdef" * 4)
        hide_slow_import(self.directory)
        paths = os.pathsep.join([str(self.directory), *sys.path])
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        os.environ |= {"PYTHONPATH": paths, "UNDERGLASS_CLUSTER_KEY": KEY}
        self._address = f"{_HEAD}:{free_port(_HEAD)}"
        port = self._address.rpartition(":")[2]
        await self._start_machine(_HEAD, "--head", f"--port={port}", "--include-dashboard=false")
        await self._start_second()

    async def stop(self) -> None:
        """See `Cluster`."""
        await self.stop_gateway()
        for machine in reversed(self._machines.values()):
            await asyncio.to_thread(machine.stop)

    def gateway_options(self) -> list[str]:
        """See `Cluster`."""
        return ["--replicas", str(REPLICAS), "--ray", self._address, *ENGINE]

    def processes(self, target: str) -> dict[str, psutil.Process]:
        """See `Cluster`."""
        if target == GATEWAY:
            return super().processes(target)
        if target == MACHINE:
            block = self._machines[_SECOND].process
            return {"block": block, **_named(_below(block), "raylet", "raylet")}
        if target == CONTROLLER:
            everything = [one for it in self._machines.values() for one in _below(it.process)]
            return _named(everything, "ServeController", "controller")
        return self._replica(int(target))

    def _replica(self, number: int) -> dict[str, psutil.Process]:
        with suppress(psutil.NoSuchProcess, IndexError):
            servers = {
                url: server
                for machine in self._machines.values()
                if machine.process.is_running()
                for url, server in servers_below(machine.process).items()
            }
            server = servers[sorted(servers)[number]]
            found = {"server": server}
            if actor := server.parent():
                found["actor"] = actor
            if engine := engine_of(server):
                found["engine"] = engine
            return found
        return {}

    async def start_again(self, target: str) -> None:
        """See `Cluster`."""
        if target == GATEWAY:
            await super().start_again(target)
        elif target == MACHINE:
            await asyncio.to_thread(self._machines[_SECOND].lose_power)
            await self._start_second()

    def lose_power(self) -> None:
        """End all processes of the second machine, its replicas' servers included."""
        self._machines[_SECOND].lose_power()

    async def health(self) -> dict[str, dict[str, Any] | None]:
        """See `Cluster`."""
        told = await health_of(self.url) or {"replicas": {}}
        return {id_: await health_of(one["url"]) for id_, one in told["replicas"].items()}

    async def _start_second(self) -> None:
        await self._start_machine(_SECOND, f"--address={self._address}", "--num-cpus=2")

    async def _start_machine(self, address: str, *arguments: str) -> None:
        self._machines[address] = await asyncio.to_thread(Machine, address, {}, *arguments)


def _below(process: psutil.Process) -> list[psutil.Process]:
    """Return all processes that a process has started; none once it has ended."""
    with suppress(psutil.NoSuchProcess):
        return list(process.children(recursive=True))
    return []


def _named(processes: list[psutil.Process], part: str, name: str) -> dict[str, psutil.Process]:
    """Return the first process whose command has `part` in it, under `name`."""
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            if part in " ".join(one.cmdline()):
                return {name: one}
    return {}
