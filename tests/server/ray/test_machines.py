"""`underglass serve --replicas 2 --ray ADDRESS`: two raylets on loopback addresses as two machines.

These start fifteen processes of Ray, so they run in `make soak`.
"""

import os
import sys
from collections.abc import Iterator
from functools import partial

import psutil
import pytest

from engine.cluster.events import Of, ReplicaLeft, Routed
from server.gateway.ray_cluster import hide_slow_import
from server.process import BackgroundServer
from tests.server.console import run
from tests.server.gateway.cluster import ClusterFeed
from tests.server.gateway.conftest import wait_for
from tests.server.gateway.test_failure import read_events, stream, text_of
from tests.server.harness import get, post
from tests.server.ray.cluster import Machine, free_port, servers_below, start_replicas

pytestmark = pytest.mark.soak
PATH = "/v1/completions"
LONG = {
    "model": "m",
    "prompt": "x",
    "max_tokens": 400,
    "ignore_eos": True,
    "stream": True,
    "seed": 1,
}
# 127.0.0.1 would not do: Ray replaces it by the host's own address.
HEAD, SECOND = "127.0.0.3", "127.0.0.2"


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What every process that joins the cluster has in its environment."""
    path = tmp_path_factory.mktemp("ray") / "token"
    path.touch(0o600)
    path.write_text("0123456789abcdef" * 4)
    hide_slow_import(path.parent)
    paths = os.pathsep.join([str(path.parent), *sys.path])
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path), "PYTHONPATH": paths}


@pytest.fixture(scope="module")
def address() -> str:
    return f"{HEAD}:{free_port(HEAD)}"


@pytest.fixture(scope="module")
def machines(address: str, token: dict[str, str]) -> Iterator[tuple[Machine, Machine]]:
    port = address.rpartition(":")[2]
    head = Machine(HEAD, token, "--head", f"--port={port}", "--include-dashboard=false")
    second = Machine(SECOND, token, f"--address={address}")
    yield head, second
    second.stop()
    head.stop()


@pytest.fixture(scope="module")
def server(
    machines: tuple[Machine, Machine], address: str, token: dict[str, str]
) -> Iterator[BackgroundServer]:
    options = ("--ray", address, "--router", "round_robin")
    with start_replicas(*options, environment=token) as server:
        wait_for(server.url, "0", "1")
        yield server


@pytest.mark.usefixtures("machines")
def test_join_without_the_token_is_rejected(address, tmp_path):
    arguments = ["serve", "--port", "0", "--replicas", "1", "--ray", address]
    done = run(*arguments, HOME=str(tmp_path))
    assert done.returncode == 2
    assert "RAY_AUTH_TOKEN_PATH" in done.stderr.splitlines()[-1]


def test_each_machine_runs_a_replica(server, machines):
    replicas = get(server.url, "/health")["replicas"]
    hosts = {one["url"].removeprefix("http://").partition(":")[0] for one in replicas.values()}
    assert hosts == {HEAD, SECOND}


def test_replicas_remain_while_the_driver_joins_again(server):
    before = get(server.url, "/health")["replicas"].keys()
    (driver,) = (
        one
        for one in psutil.Process(server.process.pid).children()
        if "server.gateway.ray_driver" in one.cmdline()
    )
    driver.kill()
    statuses = []
    while len(statuses) < 2 or statuses[-1] != "ok":
        health = get(server.url, "/health")
        assert health["replicas"].keys() == before
        statuses += [one for one in [health["ray"]["status"]] if [one] != statuses[-1:]]
    assert statuses[-2:] == ["lost", "ok"]


def test_requests_are_served_and_streams_go_on_while_a_machine_dies(server, machines):
    replicas = get(server.url, "/health")["replicas"]
    (dead,) = (id_ for id_, one in replicas.items() if SECOND in one["url"])
    statuses = []

    def has_left(event: object) -> bool:
        """Probe on every event until the replica has left: a probe makes events of its own."""
        answer = post(server.url, PATH, {"prompt": "x", "max_tokens": 1})
        statuses.append(answer.status_code)
        return isinstance(event, ReplicaLeft)

    begin = partial(stream, server.url, PATH, LONG)
    with begin() as one, begin() as other, ClusterFeed(server.url) as feed:
        feed.until(lambda event: isinstance(event, Of) and event.replica == dead)
        machines[1].lose_power()
        left = feed.until(has_left)
        assert text_of(read_events(one.iter_lines())) == text_of(read_events(other.iter_lines()))
    assert left.replica == dead
    assert any(isinstance(event, Routed) and event.output for event in feed.events)
    health = get(server.url, "/health")
    assert (health["status"], health["desired"], health["ready"]) == ("degraded", 2, 1)
    assert [one["id"] for one in health["not_ready"]] == [dead]
    assert len(statuses) > 1
    assert set(statuses) == {200}


def test_cluster_outlives_the_command(server, machines):
    replicas = servers_below(machines[0].process)
    assert len(replicas) == 1
    assert server.stop() == 0
    psutil.wait_procs(replicas.values(), timeout=60)
    assert servers_below(machines[0].process) == {}
    assert machines[0].process.is_running()
