"""The command with replicas on Ray, Ray's machines, and the processes of both."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from server.process import BackgroundServer
from underglass import child

RAY = Path(sys.executable).with_name("ray")


def start_replicas(*arguments: str, environment: dict[str, str] | None = None) -> BackgroundServer:
    """`underglass serve --replicas 2` with a small cache, so that the replicas start quickly."""
    command = child.python("underglass", "serve", "--port", "0", "--replicas", "2")
    command += ["--until-stdin-closes", "--request-log", "off", "--max-kv-tokens", "2048"]
    variables = [f"{name}={value}" for name, value in (environment or {}).items()]
    return BackgroundServer(["env", *variables, *command, *arguments])


def servers_below(process: psutil.Process) -> dict[str, psutil.Process]:
    """The replicas' own server processes, by their URLs."""
    return {
        f"http://127.0.0.{one.laddr.ip.rpartition('.')[2]}:{one.laddr.port}": child
        for child in process.children(recursive=True)
        if "server.gateway.warm" in child.cmdline()
        for one in child.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    }


class Machine:
    """A raylet at a loopback address of its own, as `ray start --block` runs it."""

    def __init__(self, address: str, environment: dict[str, str], *arguments: str) -> None:
        command = [str(RAY), "start", "--block", f"--node-ip-address={address}", "--num-cpus=1"]
        command += ["--object-store-memory=80000000", "--disable-usage-stats", *arguments]
        self.process = psutil.Popen(
            command,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if "--block" in line:  # it has started, and says how to stop it
                return
        raise RuntimeError("".join(lines))

    def lose_power(self) -> None:
        """End all its processes at once."""
        processes = [self.process, *self.process.children(recursive=True)]
        for process in processes:
            process.kill()
        psutil.wait_procs(processes)

    def stop(self) -> None:
        """Shut it down, unless it has lost power."""
        if not self.process.is_running():
            return
        processes = [self.process, *self.process.children(recursive=True)]
        self.process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(processes, timeout=30)
        for process in alive:
            process.kill()


def free_port(address: str) -> int:
    with socket.create_server((address, 0)) as listener:
        return int(listener.getsockname()[1])
