"""Replicas on Ray Serve: start or join Ray, deploy the replicas, and tell the gateway where they are.

Serve's controller knows which replicas run, and where. A long poll tells this gateway within
milliseconds, as it tells Serve's own routers. The gateway's `Router` chooses. Ray's request routers are
not used, so that one policy object works with Ray, with a list of URLs and in the simulator.

Scaling follows the load: see `ray_replica.replicas_for_load`.

Differs from Ray Serve LLM: there a request router inside Serve chooses, and tokens travel through Ray.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from server.core.engine_client import StartError
from server.gateway.replica_set import Member, RayHealth
from server.process import ServerError

if TYPE_CHECKING:
    from ray._private.node import Node
    from ray.serve._private.common import DeploymentTargetInfo

_DEPLOYMENT = "Engine"
# How long a load must last before Serve starts a replica, and how long a lull before it stops one.
_WINDOW_SECONDS = 4.0
_SCALE_UP_SECONDS = 2.0
_SCALE_DOWN_SECONDS = 20.0
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
}
# Each process of Ray imports jsonschema, which compiles this package's grammar if JupyterLab has
# installed it: 3 s of CPU time in each of eight processes, for a check that Ray does not use.
_SLOW_IMPORT = "rfc3987_syntax"
_CONNECT_SECONDS = 5.0
# Ray's workers look for modules first in the directory in which `ray.init` is called. In the command's
# own working directory, a learner's file could hide the package `server`.
_ROOT = Path(__file__).parents[2]
# Nearly the least that Ray accepts, because tokens do not travel through it.
_OBJECT_STORE_BYTES = 80 << 20


class RayOptions(Struct, frozen=True, kw_only=True):
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


class RaySet:
    """The replicas of a Serve deployment; see `ReplicaSet`. Their ids count up from "0".

    environment  options of the replicas' servers, as `UNDERGLASS_...` variables
    """

    def __init__(self, options: RayOptions, environment: Mapping[str, str]) -> None:
        self._options = options
        self._environment = environment
        self._application = f"underglass-{secrets.token_hex(4)}"  # a cluster may serve several
        self._members: dict[str, str] = {}  # Serve's id -> ours
        self._joined = 0
        self.desired, self.since = options.replicas, datetime.now(UTC)
        self.ray: RayHealth | None = RayHealth(status="ok", reason="", since=self.since)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the replicas; stop them after the block.

        Ray is started on this machine, or joined if the options name a cluster. A cluster that was
        joined keeps running. Call this in the main thread: Ray's processes end with the thread that
        started them. A SIGTERM ends the start-up, too.

        Raises StartError if Ray does not start, or if a replica does not.
        """
        address = self._options.address
        if address not in (None, "auto"):
            _check_reachable(address)  # Ray would try for minutes
        count = self._options.replicas
        what = f"{'' if address else 'Ray and '}{count} replica{'s' * (count != 1)}"
        print(f"Starting {what}: 10 to 30 seconds.", file=sys.stderr, flush=True)
        os.environ.update(_QUIET)
        sys.modules.setdefault(_SLOW_IMPORT, None)  # type: ignore[arg-type] # cannot be imported
        before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
        with (
            _own_ray(self._options) if address is None else _joined_ray(address),
            _deployed(self._application, self._options, self._environment),
        ):
            signal.signal(signal.SIGTERM, before)
            yield

    async def start(
        self, add: Callable[[Member], None], remove: Callable[[str, str], None]
    ) -> None:
        """See `ReplicaSet`."""
        from ray.serve._private.common import DeploymentID
        from ray.serve._private.long_poll import LongPollClient, LongPollNamespace
        from ray.serve.context import _get_global_client

        def update(targets: "DeploymentTargetInfo") -> None:
            running = {one.replica_id.unique_id: one for one in targets.running_replicas}
            for gone in self._members.keys() - running.keys():
                remove(self._members.pop(gone), "Ray has stopped it or found it dead")
            for new in sorted(running.keys() - self._members.keys()):
                self._members[new] = str(self._joined)
                self._joined += 1
                add(Member(self._members[new], running[new].replica_metadata["url"]))

        client = _get_global_client()
        assert client is not None
        key = (LongPollNamespace.DEPLOYMENT_TARGETS, DeploymentID(_DEPLOYMENT, self._application))
        loop = asyncio.get_running_loop()
        self._poll = LongPollClient(client._controller, {key: update}, loop, "underglass")

    async def stop(self) -> None:
        """See `ReplicaSet`. The replicas stop when the block of `running` ends."""
        self._poll.stop()


def hide_slow_import(directory: Path) -> None:
    """Write a module that hides `_SLOW_IMPORT` from processes with `directory` in their PYTHONPATH."""
    (directory / f"{_SLOW_IMPORT}.py").write_text("raise ImportError\n")


def check_installed() -> None:
    """Raise ModuleNotFoundError without Ray. Does not import it: Ray reads the environment when it
    starts."""
    if find_spec("ray") is None:
        raise ModuleNotFoundError("No module named 'ray'", name="ray")


@contextmanager
def _own_ray(options: RayOptions) -> Iterator[None]:
    """Start Ray on loopback, and end its processes after the block."""
    # Ray's sockets have long names in this directory, and a socket's name has at most 107 characters.
    with TemporaryDirectory(prefix="underglass-", dir="/tmp", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        token = directory / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        hide_slow_import(directory)
        paths = [name, os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        os.environ.update(_OWN, RAY_AUTH_TOKEN_PATH=str(token))
        os.environ.pop("RAY_AUTH_TOKEN", None)  # would take precedence
        import ray

        _silence()
        node = _start_node(options, directory)
        try:
            with chdir(_ROOT):
                ray.init(node.address, _node_ip_address="127.0.0.1", **_connection())
            yield
        finally:
            ray.shutdown()
            node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)


def _start_node(options: RayOptions, directory: Path) -> "Node":
    """Start Ray's processes. `ray.init` would start two more, and cannot be told not to."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    parameters = RayParams(
        node_ip_address="127.0.0.1",
        # Ray schedules by this number but does not enforce it, so it is small: every replica shall find
        # a place.
        num_cpus=(options.max_replicas or options.replicas) * options.threads,
        num_gpus=0,
        include_dashboard=False,
        no_monitor=True,  # an autoscaler, which adds and removes machines
        include_log_monitor=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        temp_dir=str(directory),
    )
    try:
        return Node(parameters, head=True, shutdown_at_exit=False)
    except Exception as error:  # Ray raises this very class
        reason = str(error).strip().partition("\n")[0]
        raise StartError(
            f"Ray did not start; it gives up when the machine is too busy: {reason}"
        ) from error


@contextmanager
def _joined_ray(address: str) -> Iterator[None]:
    """Join a cluster, and leave it after the block."""
    os.environ["RAY_NUM_REDIS_GET_RETRIES"] = "3"  # it can be reached, so a rejection is final
    import ray

    _silence()
    try:
        with chdir(_ROOT):
            ray.init(address, **_connection())
    except (ray.exceptions.AuthenticationError, OSError, RuntimeError, ValueError) as error:
        if "InvalidAuthToken" in f"{error} {error.__cause__}":
            raise StartError(
                f"--ray {address} rejects this command: set RAY_AUTH_MODE=token, and "
                "RAY_AUTH_TOKEN_PATH to the file with the cluster's token"
            ) from error
        reason = str(error).partition("\n")[0]
        raise StartError(f"--ray {address} cannot be joined: {reason}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise StartError(f"--ray must be auto or HOST:PORT, got {address}")
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise StartError(
            f"--ray {address}: there is no Ray cluster: {error.strerror or error}"
        ) from error


def _connection() -> dict[str, Any]:
    return {"namespace": "underglass", "log_to_driver": False, "logging_level": logging.ERROR}


def _silence() -> None:
    import ray.serve  # noqa: F401 (it sets the level when it is imported)

    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)


@contextmanager
def _deployed(name: str, options: RayOptions, environment: Mapping[str, str]) -> Iterator[None]:
    """Deploy the replicas, wait until all run, and stop them after the block."""
    import ray
    from ray import serve

    from server.gateway.ray_replica import EngineReplica

    limits: dict[str, Any] = {"num_replicas": options.replicas}
    if options.max_replicas is not None:
        limits = {
            "autoscaling_config": {
                "min_replicas": options.replicas,
                "max_replicas": options.max_replicas,
                "target_ongoing_requests": options.batch,
                "metrics_interval_s": 1.0,  # each replica sends its count so often
                "look_back_period_s": _WINDOW_SECONDS,
                "upscale_delay_s": _SCALE_UP_SECONDS,
                "downscale_delay_s": _SCALE_DOWN_SECONDS,
                "policy": {"policy_function": "server.gateway.ray_replica:replicas_for_load"},
            }
        }
    application = serve.deployment(
        EngineReplica,
        name=_DEPLOYMENT,
        ray_actor_options={"num_cpus": options.threads},
        health_check_period_s=1,
        health_check_timeout_s=60,  # a busy machine is slow; a dead process is noticed at once
        graceful_shutdown_wait_loop_s=0.1,  # Serve counts no requests, because the server drains itself
        graceful_shutdown_timeout_s=options.drain_seconds + 10,
        max_constructor_retry_count=1,
        **limits,
    ).bind(environment)
    _report_missing_cpus(options)
    before, started = _serve_runs(), False
    try:
        serve.start(proxy_location="Disabled")
        serve.run(application, name=name, route_prefix=None)
        started = True
        yield
    except RuntimeError as error:
        if started:
            raise
        raise StartError(f"the replicas did not start: {_reason(name, error)}") from error
    finally:
        if ray.is_initialized():
            serve.delete(name)
            if not before:
                serve.shutdown()


def _report_missing_cpus(options: RayOptions) -> None:
    """Say why nothing happens: Ray waits until a machine has room, or joins."""
    from ray import available_resources

    needed, free = options.replicas * options.threads, available_resources().get("CPU", 0)
    if needed > free:
        print(
            f"The replicas need {needed} CPUs, and Ray has {free:g} free: waiting for more machines.",
            file=sys.stderr,
        )


def _serve_runs() -> bool:
    from ray import get_actor
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    try:
        get_actor(SERVE_CONTROLLER_NAME, SERVE_NAMESPACE)
    except ValueError:
        return False
    return True


def _reason(name: str, error: RuntimeError) -> str:
    """Return the server's own message, which is the last line of a replica's traceback."""
    from ray import serve

    deployed = serve.status().applications.get(name)
    messages = [one.message for one in deployed.deployments.values()] if deployed else []
    last = "".join(messages or [str(error)]).strip().splitlines()[-1]
    return last.removeprefix(f"{ServerError.__module__}.ServerError: ").removeprefix("underglass: ")
