"""Replicas on Ray Serve, as the gateway sees them.

Ray ends every process that has joined it when the raylet of its machine dies. So the gateway does not
join: `ray_driver.py` does, in a process of its own, and tells the gateway where the replicas are. When
that process ends, or says that Ray is dead, the gateway serves on with the replicas that still answer,
and tries again, with pauses that grow: it joins the cluster again, or starts Ray and replicas anew.
The old replicas are removed only when the new ones run.

Scaling follows the load: see `ray_replica.replicas_for_load`.

Differs from Ray Serve LLM: there an actor of Serve routes, and dies with its raylet.
"""

import asyncio
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import msgspec

from server.core.engine_client import StartError
from server.gateway.replica_set import Member, RayHealth
from underglass import child

logger = logging.getLogger("underglass")

# Ray's log lines would mix with the request log; they are in the session's directory.
_QUIET = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",  # otherwise Ray reports its use to its makers
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",  # a SIGTERM is no crash
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_OWN = {
    "RAY_AUTH_MODE": "token",
    # Ray listens on loopback only, as it does by default on macOS and Windows.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_kill_child_processes_on_worker_exit": "0",  # a server outlives its actor, see `Server`
}
_JOINED = {"RAY_NUM_REDIS_GET_RETRIES": "3"}  # the cluster can be reached, so a rejection is final
# Each process of Ray imports jsonschema, which compiles this package's grammar if JupyterLab has
# installed it: 3 s of CPU time in each of eight processes, for a check that Ray does not use.
_SLOW_IMPORT = "rfc3987_syntax"
_CONNECT_SECONDS = 5.0
# Before Ray is started or joined again; each further pause is twice as long.
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
# How long a server that is replaced accepts requests, so that the gateway can join the new one.
_JOIN_SECONDS = 5.0
_END_SECONDS = 30.0  # beyond the drain: how long the process may take to stop Ray
# Ray's workers look for modules first in the directory in which `ray.init` is called. In the command's
# own working directory, a learner's file could hide the package `server`.
_ROOT = Path(__file__).parents[2]


class RayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run on Ray.

    replicas       number of replicas; with `max_replicas`, the least number
    max_replicas   None, or the most replicas that Serve may start under load
    address        None to start Ray on this machine, or "auto" or HOST:PORT of a cluster to join
    threads        CPU threads that Ray reserves for each replica
    batch          requests that fill a replica's batch; more unfinished ones need another replica
    drain_seconds  how long a replica that is stopped may finish its requests
    """

    replicas: int
    max_replicas: int | None
    address: str | None
    threads: int
    batch: int
    drain_seconds: float


class Deploy(msgspec.Struct):
    """What the gateway sends to the process that talks to Ray. The end of stdin ends that process.

    application  the name in Serve, which may serve several in a cluster
    environment  options of the replicas' servers, as `UNDERGLASS_...` variables
    directory    for the files of a Ray that is started
    """

    options: RayOptions
    application: str
    environment: Mapping[str, str]
    directory: str


class Server(msgspec.Struct):
    """The server of a replica.

    lifeline  a FIFO, its stdin, if Ray was started on this machine: the server ends when neither its
              actor nor the gateway holds it open
    """

    url: str
    lifeline: str


class Running(msgspec.Struct, tag=True):
    """The servers of the replicas that run, by Serve's ids, and how many should run."""

    replicas: dict[str, Server]
    desired: int


class Failed(msgspec.Struct, tag=True):
    """Ray or the replicas do not start; or Ray, which has run, is dead."""

    reason: str


class RaySet:
    """The replicas of a Serve deployment; see `ReplicaSet`. Their ids count up from "0".

    environment  options of the replicas' servers, as `UNDERGLASS_...` variables
    """

    def __init__(self, options: RayOptions, environment: Mapping[str, str]) -> None:
        self._options = options
        self._environment = environment
        self._application = f"underglass-{secrets.token_hex(4)}"
        self._members: dict[str, str] = {}  # Serve's id -> ours
        self._lifelines: dict[str, BinaryIO] = {}
        self._joined = 0
        self._running: Running | None = None
        self._update: Callable[[Running], None] | None = None  # once the gateway listens
        self._drivers: list[_Driver] = []
        self._ending = threading.Event()
        self.desired, self.since = options.replicas, datetime.now(UTC)
        self.ray: RayHealth | None = RayHealth(status="ok", reason="", since=self.since)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the replicas; stop them after the block.

        Ray is started on this machine, or joined if the options name a cluster. A cluster that was
        joined keeps running. A SIGTERM ends the start-up, too.

        Raises StartError if Ray does not start, or if a replica does not.
        """
        address, count = self._options.address, self._options.replicas
        self._check_reachable()
        what = f"{'' if address else 'Ray and '}{count} replica{'s' * (count != 1)}"
        print(f"Starting {what}: 10 to 30 seconds.", file=sys.stderr, flush=True)
        before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
        driver = self._started()
        keeping = threading.Thread(target=self._keep, args=(driver,), daemon=True)
        try:
            keeping.start()
            signal.signal(signal.SIGTERM, before)
            yield
        finally:
            self._ending.set()
            for lifeline in self._lifelines.values():
                lifeline.close()
            for one in list(self._drivers):
                one.end()
            keeping.join()

    async def start(
        self, add: Callable[[Member], None], remove: Callable[[str, str], None]
    ) -> None:
        """See `ReplicaSet`.

        A replica that Ray no longer lists remains a member until another one runs in its place. Its
        server may still answer, and Serve's controller, once started again, does not know all of them
        at once.
        """
        loop = asyncio.get_running_loop()

        def update(told: Running) -> None:
            new = sorted(told.replicas.keys() - self._members.keys())
            gone = [id_ for id_ in self._members if id_ not in told.replicas]
            too_many = len(self._members) + len(new) - told.desired
            for id_ in gone[: max(0, too_many)]:
                remove(self._members.pop(id_), "Ray has stopped it or found it dead")
                loop.call_later(_JOIN_SECONDS, self._lifelines.pop(id_).close)
            for id_ in new:
                self._members[id_] = str(self._joined)
                self._lifelines[id_] = _held(told.replicas[id_].lifeline)
                self._joined += 1
                add(Member(self._members[id_], told.replicas[id_].url))
            if self.desired != told.desired:
                self.desired, self.since = told.desired, datetime.now(UTC)

        def on_loop(told: Running) -> None:
            with suppress(RuntimeError):  # the loop is closed: the gateway has ended
                loop.call_soon_threadsafe(update, told)

        self._update = on_loop
        if self._running is not None:
            update(self._running)

    async def stop(self) -> None:
        """See `ReplicaSet`. The replicas stop when the block of `running` ends."""

    def _started(self) -> "_Driver":
        """Start or join Ray; return when the replicas run. Raises StartError."""
        self._check_reachable()
        driver = _Driver(Deploy(self._options, self._application, self._environment, ""))
        self._drivers.append(driver)
        try:
            told = Failed("the command ends") if self._ending.is_set() else driver.read()
            if isinstance(told, Failed):
                raise StartError(told.reason)
        except BaseException:
            self._end(driver)
            raise
        self._believe(told)
        return driver

    def _check_reachable(self) -> None:
        """Raise StartError if no cluster can be there: Ray would try for minutes."""
        address = self._options.address
        if address in (None, "auto"):
            return
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise StartError(f"--ray must be auto or HOST:PORT, got {address}")
        try:
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        except OSError as error:
            raise StartError(
                f"--ray {address}: there is no Ray cluster: {error.strerror or error}"
            ) from error

    def _end(self, driver: "_Driver") -> None:
        driver.end()
        self._drivers.remove(driver)

    def _believe(self, told: Running) -> None:
        self._running = told
        if self._update is not None:
            self._update(told)

    def _keep(self, driver: "_Driver") -> None:
        """Follow what Ray tells, and start or join it again whenever it is lost; on a thread."""
        while True:
            while isinstance(told := driver.read(), Running):
                self._believe(told)
            lost, pause = driver, _FIRST_PAUSE
            if self._ending.is_set():
                return
            since = datetime.now(UTC)
            logger.error("Ray is lost: %s. The replicas that answer serve on", told.reason)
            problem = told.reason
            while driver is lost:
                self.ray = RayHealth(status="lost", reason=problem, since=since)
                if self._ending.wait(pause):
                    return
                pause = min(2 * pause, _LAST_PAUSE)
                try:
                    driver = self._started()
                except (StartError, OSError) as error:  # such as a full disk
                    problem = f"{told.reason}; then {error}"
            self.ray = RayHealth(status="ok", reason="", since=datetime.now(UTC))
            logger.info("Ray runs again")
            self._end(lost)


class _Driver:
    """A process that talks to Ray."""

    def __init__(self, deploy: Deploy) -> None:
        # Ray's sockets have long names in this directory, and a socket's name at most 107 characters.
        self._directory = Path(tempfile.mkdtemp(prefix="underglass-", dir="/tmp"))
        hide_slow_import(self._directory)
        variables = child.environment() | _QUIET
        paths = [str(self._directory), variables.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        if deploy.options.address is None:
            token = self._directory / "token"
            token.touch(0o600)
            token.write_text(secrets.token_hex(32))
            variables |= _OWN | {"RAY_AUTH_TOKEN_PATH": str(token)}
            variables.pop("RAY_AUTH_TOKEN", None)  # would take precedence
        else:
            variables |= _JOINED
        self._limit = deploy.options.drain_seconds + _END_SECONDS
        self._process = subprocess.Popen(
            child.python("server.gateway.ray_driver"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env=variables,
            start_new_session=True,  # Ctrl-C must reach it after the drain only
        )
        deploy = msgspec.structs.replace(deploy, directory=str(self._directory))
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `read` says so
            self._process.stdin.write(msgspec.json.encode(deploy) + b"\n")
            self._process.stdin.flush()

    def read(self) -> Running | Failed:
        """Return the next message; Failed if the process has ended."""
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return msgspec.json.decode(line, type=Running | Failed)
        return Failed(
            f"the process that talks to Ray has ended, with {_code(self._process.wait())}"
        )

    def end(self) -> None:
        """Let the process stop the replicas and Ray, or leave the cluster; wait until it has ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(self._limit)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def _held(lifeline: str) -> BinaryIO:
    """Keep a server running, even if its actor ends, until the returned file is closed."""
    try:
        return os.fdopen(os.open(lifeline, os.O_WRONLY | os.O_NONBLOCK), "wb")
    except OSError:  # it has none, or has ended already
        return BytesIO()


def _code(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def hide_slow_import(directory: Path) -> None:
    """Write a module that hides `_SLOW_IMPORT` from processes with `directory` in their PYTHONPATH."""
    (directory / f"{_SLOW_IMPORT}.py").write_text("raise ImportError\n")


def check_installed() -> None:
    """Raise ModuleNotFoundError without Ray, which takes long to import."""
    if find_spec("ray") is None:
        raise ModuleNotFoundError("No module named 'ray'", name="ray")
