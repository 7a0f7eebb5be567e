"""The process that has joined Ray: it starts or joins Ray, deploys the replicas, and tells the gateway.

    gateway (`ray_cluster.py`)   --stdin-->    Deploy; later the end of the file: stop
                                 <--stdout--   Running, whenever other replicas run; Failed

Serve's controller knows which replicas run, and where. A long poll tells this process within
milliseconds, as it tells Serve's own routers. Ray's request routers are not used: the gateway routes,
so that one policy object works with Ray, with a list of URLs and in the simulator.

When Ray dies, this process says so and waits for the end of stdin; or Ray ends it. A Ray that it has
started ends with it, because the kernel kills Ray's processes when the thread that started them ends.
"""

import asyncio
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec
import ray
from ray import serve
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray.serve._private.common import DeploymentID, DeploymentTargetInfo
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
from ray.serve._private.long_poll import LongPollClient, LongPollNamespace
from ray.serve.context import _get_global_client

from server.core.engine_client import StartError
from server.gateway.ray_cluster import Deploy, Failed, RayOptions, Running, Server
from server.gateway.ray_replica import EngineReplica
from server.process import ServerError

_DEPLOYMENT = "Engine"
# How long a load must last before Serve starts a replica, and how long a lull before it stops one.
_WINDOW_SECONDS = 4.0
_SCALE_UP_SECONDS = 2.0
_SCALE_DOWN_SECONDS = 20.0
# Nearly the least that Ray accepts, because tokens do not travel through it.
_OBJECT_STORE_BYTES = 80 << 20
# Processes without which a Ray of ours is dead, and how often to look.
_VITAL = ("gcs_server", "raylet")
_LOOK_SECONDS = 1.0
# How long Ray may take to stop once the replicas have.
_STOP_SECONDS = 20.0


class _Lost:
    """Whether Ray is dead, so that nothing can be asked of it."""

    reason = ""


def main() -> None:
    """Run the replicas until stdin ends."""
    telling = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # Ray's own words do not get between the messages

    def tell(message: Running | Failed) -> None:
        telling.write(msgspec.json.encode(message) + b"\n")

    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    deploy = msgspec.json.decode(sys.stdin.buffer.readline(), type=Deploy)
    options = deploy.options
    limit = options.drain_seconds + _STOP_SECONDS
    threading.Thread(target=_end_with_stdin, args=(limit,), daemon=True).start()
    running: AbstractContextManager[Node | None] = (
        _joined_ray(options.address) if options.address else _own_ray(deploy)
    )
    try:
        with running as node, _deployed(deploy):
            asyncio.run(_tell(deploy, node, tell))
    except StartError as error:
        tell(Failed(str(error)))


def _end_with_stdin(limit: float) -> None:
    """End this process when the gateway closes stdin or dies; after `limit` seconds in any case."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_LOOK_SECONDS if _Lost.reason else limit)
    os._exit(1)


async def _tell(
    deploy: Deploy, node: Node | None, tell: Callable[[Running | Failed], None]
) -> None:
    """Tell which replicas run, whenever that changes, and that Ray is dead."""
    options, client = deploy.options, _get_global_client()
    assert client is not None
    told = Running({}, options.replicas)

    def update(targets: DeploymentTargetInfo) -> None:
        told.replicas = {
            one.replica_id.unique_id: msgspec.convert(one.replica_metadata, Server)
            for one in targets.running_replicas
        }
        tell(told)

    key = (LongPollNamespace.DEPLOYMENT_TARGETS, DeploymentID(_DEPLOYMENT, deploy.application))
    loop = asyncio.get_running_loop()
    poll = LongPollClient(client._controller, {key: update}, loop, "underglass")
    try:
        while not (reason := _death(node)):
            await asyncio.sleep(_LOOK_SECONDS)
            if options.max_replicas is not None:
                before = told.desired
                told.desired = await asyncio.to_thread(_desired, deploy.application, before)
                if told.desired != before:
                    tell(told)
    finally:
        poll.stop()
    _Lost.reason = reason
    tell(Failed(reason))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Ray would complain every second
    await asyncio.Event().wait()


def _death(node: Any) -> str:
    """Return which process of a Ray of ours has ended, or ""."""
    for kind in _VITAL if node is not None else ():
        for one in node.all_processes[kind]:
            if (code := one.process.poll()) is not None:
                return f"Ray's process {kind} has ended, with code {code}"
    return ""


def _desired(application: str, before: int) -> int:
    """Return how many replicas Serve wants to run now; `before` if it does not say."""
    client = _get_global_client()
    assert client is not None
    try:
        details = client.get_serve_details()["applications"][application]
        return int(details["deployments"][_DEPLOYMENT]["target_num_replicas"])
    except (KeyError, ray.exceptions.RayError):
        return before


@contextmanager
def _own_ray(deploy: Deploy) -> Iterator[Node]:
    """Start Ray on loopback, and end its processes after the block."""
    node = _start_node(deploy.options, deploy.directory)
    try:
        ray.init(node.address, _node_ip_address="127.0.0.1", **_connection())
        yield node
    finally:
        if not _Lost.reason:
            ray.shutdown()
        node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
        shutil.rmtree(deploy.directory, ignore_errors=True)  # the gateway may be dead


def _start_node(options: RayOptions, directory: str) -> Node:
    """Start Ray's processes. `ray.init` would start two more, and cannot be told not to."""
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
        temp_dir=directory,
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
    try:
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


def _connection() -> dict[str, Any]:
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return {"namespace": "underglass", "log_to_driver": False, "logging_level": logging.ERROR}


@contextmanager
def _deployed(deploy: Deploy) -> Iterator[None]:
    """Deploy the replicas, wait until all run, and stop them after the block.

    A cluster that is joined again may still run them.
    """
    name, options = deploy.application, deploy.options
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
    ).bind(deploy.environment, None if options.address else deploy.directory)
    _report_missing_cpus(options)
    before = _serve_runs()
    try:
        serve.start(proxy_location="Disabled")
        try:
            if name not in serve.status().applications:
                serve.run(application, name=name, route_prefix=None)
        except RuntimeError as error:
            raise StartError(f"the replicas did not start: {_reason(name, error)}") from error
        yield
    finally:
        if not _Lost.reason:
            serve.delete(name)
            if not before:
                serve.shutdown()


def _report_missing_cpus(options: RayOptions) -> None:
    """Say why nothing happens: Ray waits until a machine has room, or joins."""
    needed, free = options.replicas * options.threads, ray.available_resources().get("CPU", 0)
    if needed > free:
        print(
            f"The replicas need {needed} CPUs, and Ray has {free:g} free: waiting for more machines.",
            file=sys.stderr,
        )


def _serve_runs() -> bool:
    try:
        ray.get_actor(SERVE_CONTROLLER_NAME, SERVE_NAMESPACE)
    except ValueError:
        return False
    return True


def _reason(name: str, error: RuntimeError) -> str:
    """Return the server's own message, which is the last line of a replica's traceback."""
    deployed = serve.status().applications.get(name)
    messages = [one.message for one in deployed.deployments.values()] if deployed else []
    last = "".join(messages or [str(error)]).strip().splitlines()[-1]
    return last.removeprefix(f"{ServerError.__module__}.ServerError: ").removeprefix("underglass: ")


if __name__ == "__main__":
    main()
