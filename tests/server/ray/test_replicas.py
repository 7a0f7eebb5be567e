"""`underglass serve --replicas 2`, with Ray on this machine: one Ray for all; the last test ends it."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from engine.cluster.events import ReplicaJoined, ReplicaLeft
from server.process import BackgroundServer
from tests.server.gateway.cluster import ClusterFeed
from tests.server.gateway.conftest import wait_for
from tests.server.gateway.test_failure import read_events, stream
from tests.server.harness import get, post
from tests.server.ray.cluster import servers_below, start_replicas
from tests.server.sdk import sdk

BATCH = 4
LONG = {"model": "m", "prompt": "x", "max_tokens": 1000, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundServer]:
    """Started in a folder with files that Ray's workers must not take for our packages."""
    folder = tmp_path_factory.mktemp("folder")
    for name in ("engine", "server", "visualizer"):
        (folder / f"{name}.py").touch()
    options = ["--router", "round_robin", "--drain-seconds", "60"]
    options += ["--max-replicas", "3", "--max-batch-size", str(BATCH)]
    with chdir(folder):
        started = start_replicas(*options)
    with started as server:
        wait_for(server.url, "0", "1")
        yield server


def test_openai_sdk_gets_the_same_tokens_from_both_replicas(server):
    texts = {}
    with sdk(server.url) as client:
        for _ in range(2):
            raw = client.completions.with_raw_response.create(
                model="bundled", prompt="Once upon a time", max_tokens=20, temperature=0
            )
            texts[raw.headers["x-underglass-replica"]] = raw.parse().choices[0].text
    assert texts.keys() == {"0", "1"}
    assert texts["0"] == texts["1"] != ""


def test_options_reach_the_replicas(server):
    replicas = get(server.url, "/health")["replicas"]
    assert {one["blocks"]["total"] for one in replicas.values()} == {2048 // 16}


def test_every_socket_listens_on_loopback(server):
    command = psutil.Process(server.process.pid)
    addresses = {
        one.laddr.ip.removeprefix("::ffff:")
        for process in [command, *command.children(recursive=True)]
        for one in process.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def test_replica_takes_controls_from_its_gateway_only(server):
    replica = get(server.url, "/health")["replicas"]["0"]["url"]
    assert post(replica, "/engine/pause").status_code == 403
    assert post(server.url, "/engine/pause").status_code == 200
    assert get(replica, "/health")["paused"]
    post(server.url, "/engine/resume")


def test_killed_server_is_started_again_in_its_place(server):
    processes = servers_below(psutil.Process(server.process.pid))
    long = LONG | {"max_tokens": 300}
    with ClusterFeed(server.url) as feed, stream(server.url, "/v1/completions", long) as response:
        id_ = response.headers["x-underglass-replica"]
        lines = response.iter_lines()
        next(line for line in lines if line.startswith("data: "))
        server_of = processes[get(server.url, "/health")["replicas"][id_]["url"]]
        server_of.kill()
        assert feed.until(lambda event: isinstance(event, ReplicaLeft)).replica == id_
        health = get(server.url, "/health")
        *_, last, done = read_events(lines)
        joined = feed.until(lambda event: isinstance(event, ReplicaJoined))
    assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    assert (health["desired"], health["status"]) == (2, "degraded")
    assert [(one["id"], one["state"]) for one in health["not_ready"]] == [(id_, "unreachable")]
    assert joined.replica == id_
    wait_for(server.url, "0", "1")
    assert get(server.url, "/health")["status"] == "ok"


@pytest.mark.soak  # starts another Ray
def test_gateway_outlives_its_ray(server):
    (raylet,) = (
        one
        for one in psutil.Process(server.process.pid).children(recursive=True)
        if one.name() == "raylet"
    )
    before = set(get(server.url, "/health")["replicas"])
    raylet.kill()
    answers, health = [], get(server.url, "/health")
    lost = False
    while set(health["replicas"]) & before or health["ray"]["status"] != "ok":
        answers.append(post(server.url, "/v1/completions", {"prompt": "x", "max_tokens": 1}))
        health = get(server.url, "/health")
        lost |= "raylet" in health["ray"]["reason"]
    assert lost
    assert {one.status_code for one in answers} == {200}
    wait_for(server.url, *health["replicas"])


@pytest.mark.soak  # one more replica, after the one that replaces a killed one
def test_load_adds_a_replica_that_is_used(server):
    before = set(get(server.url, "/health")["replicas"])
    short = {"prompt": "x", "max_tokens": 1}
    post(server.url, "/engine/pause")
    with ClusterFeed(server.url) as feed, ExitStack() as streams:
        for _ in range(2 * BATCH + 1):  # one more than the batches of both have seats for
            streams.enter_context(stream(server.url, "/v1/completions", LONG))
        joined = feed.until(lambda e: isinstance(e, ReplicaJoined) and e.replica not in before)
        added = joined.replica
        feed.until_ready(*before, added)
    post(server.url, "/engine/resume")
    answers = [post(server.url, "/v1/completions", short) for _ in range(3)]
    assert {one.headers["x-underglass-replica"] for one in answers} == before | {added}
    assert {one.status_code for one in answers} == {200}


def test_sigterm_drains_and_leaves_no_process(server):
    command = psutil.Process(server.process.pid)
    processes = command.children(recursive=True)
    token = Path(processes[0].environ()["RAY_AUTH_TOKEN_PATH"])
    assert token.stat().st_mode & 0o777 == 0o600
    with (
        stream(server.url, "/v1/completions", LONG) as one,
        stream(server.url, "/v1/completions", LONG) as other,
    ):
        assert one.headers["x-underglass-replica"] != other.headers["x-underglass-replica"]
        command.send_signal(signal.SIGTERM)
        for response in (one, other):
            *_, last, done = read_events(response.iter_lines())
            assert "error" not in last
            assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    assert server.process.wait() == 0
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert alive == []
    assert not token.parent.exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own, when it is imported
@pytest.mark.parametrize(
    ("unfinished", "wanted"),
    [({}, 0), ({"a": 0.0}, 0), ({"a": 8.0}, 1), ({"a": 8.5, "b": 7.5}, 2), ({"a": 24.5}, 4)],
)
def test_every_request_has_a_place_in_a_batch(unfinished, wanted):
    from server.gateway.ray_replica import replicas_for_load

    config = SimpleNamespace(get_target_ongoing_requests=lambda: 8)
    metrics = {"unfinished": unfinished} if unfinished else {}
    context = SimpleNamespace(aggregated_metrics=metrics, config=config)
    assert replicas_for_load(context) == (wanted, {})
