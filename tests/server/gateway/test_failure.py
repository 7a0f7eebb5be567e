"""Clients that leave, replicas that die, replicas that come back."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from engine.cluster.events import HopFailed, ReplicaJoined, ReplicaLeft
from engine.core.log.vocabulary import RequestFinished
from server.process import BackgroundServer
from tests.server.gateway.cluster import ClusterFeed
from tests.server.harness import (
    Caller,
    Feed,
    fetch,
    get,
    http,
    limit_files,
    metrics,
    post,
    refusal,
    sse_data,
    until,
)
from tests.server.lmtp.wire import Wire, letters

STREAMS = {
    "openai": ("/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 9, "stream": True}),
    "chat": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, "stream": True},
    ),
    "teaching": ("/v1/completions", {"prompt": "x", "max_tokens": 9}),
}


@contextmanager
def stream(url: str, path: str, body: Any) -> Iterator[httpx.Response]:
    with http(url) as client, client.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        yield response


def read_events(lines: Iterator[str]) -> list[Any]:
    return sse_data("\n".join(lines))


def kill(server: BackgroundServer) -> None:
    server.process.kill()
    server.process.wait()


def text_of(events: list[Any]) -> str:
    """The text of a completion that has been streamed."""
    *chunks, done = events
    assert done == "[DONE]"
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


def test_request_that_lost_its_replica_waits_for_a_place(serve, gateway):
    replicas = {id_: serve(paused=True, server={"max_waiting": 1}) for id_ in ("0", "1")}
    url = gateway(*(replica.url for replica in replicas.values())).url
    with stream(url, *STREAMS["openai"]) as response, ClusterFeed(url) as feed:
        dead = response.headers["x-underglass-replica"]
        other = replicas["1" if dead == "0" else "0"]
        with stream(other.url, *STREAMS["openai"]) as its:  # its queue is full now
            kill(replicas[dead])
            full = feed.until(lambda event: isinstance(event, HopFailed) and event.hop == "queue")
            assert (full.noticed, full.remedy) == ("refused", "waits")
            post(other.url, "/engine/resume")
            its.read()
        assert text_of(read_events(response.iter_lines())) == "abcdefghi"


def test_without_a_replica_requests_get_503_and_streams_wait_for_one(serve, gateway):
    replica = serve(paused=True)
    url = gateway(replica.url).url
    with stream(url, *STREAMS["openai"]) as response, ClusterFeed(url) as feed:
        kill(replica)
        feed.until(lambda event: isinstance(event, HopFailed) and event.remedy == "waits")
        feed.until_ready()
        refused = post(url, "/v1/completions", {"prompt": "x"})
        assert refusal(refused) == (503, "no_replica")
        assert refused.headers["retry-after"]
        assert [fetch(url, path).status_code for path in ("/ready", "/ping")] == [503] * 2
        assert [one["url"] for one in get(url, "/health")["not_ready"]] == [replica.url]
        serve(port=int(replica.url.rpartition(":")[2]))
        assert text_of(read_events(response.iter_lines())) == "abcdefghi"


def test_replica_joins_late_and_again(serve, gateway):
    first = serve()
    port = int(first.url.rpartition(":")[2])
    kill(first)
    server = gateway(first.url, wait=False)
    with ClusterFeed(server.url, past=True) as feed:
        assert first.url in feed.until_not_ready()
        second = serve(port=port)
        feed.until_ready("0")
        kill(second)
        feed.until(lambda event: isinstance(event, ReplicaLeft))
        serve(port=port)
        assert feed.until(lambda event: isinstance(event, ReplicaJoined)).url == first.url
    assert server.output().count(f"Waiting for replica 0 at {first.url}: ") == 2
    answer = post(server.url, "/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 2})
    assert answer.json()["choices"][0]["text"] == "ab"


def test_client_that_leaves_is_aborted_on_its_replica(serve, gateway):
    replica = serve(paused=True)
    url = gateway(replica.url).url
    with Feed(replica.url) as feed:
        with stream(url, *STREAMS["teaching"]):
            pass
        assert feed.until_kind(RequestFinished).reason == "abort"


def test_the_gateway_tells_a_full_disk_and_that_every_engine_has_failed(serve, gateway, tmp_path):
    path = tmp_path / "class.jsonl"
    replica = serve(paused=True, trace_file=str(path))
    url = gateway(replica.url).url
    limit_files(replica, path.stat().st_size)
    callers = [
        Caller(replica.url, "/v1/completions", {"prompt": "x"}, X_Client=name)
        for name in ("x", "break")
    ]
    until(url, "/health", lambda told: bool(told.json()["replicas"]["0"]["trace_error"]))
    ready, health = get(url, "/ready"), get(url, "/health")
    assert ready["trace_error"] == f"replica 0: {health['replicas']['0']['trace_error']}"
    assert metrics(url)[("cluster:trace_failed",)] == 1
    post(replica.url, "/engine/resume")  # the policy fails
    until(url, "/health", lambda told: told.status_code == 503)
    assert get(url, "/health")["status"] == "no_replica"
    for caller in callers:
        caller.read_all()


@pytest.mark.parametrize("kind", STREAMS)
def test_running_stream_ends_before_the_gateway_does(serve, gateway, kind):
    replica = serve(paused=True)
    server = gateway(replica.url)
    with stream(server.url, *STREAMS[kind]) as response, ClusterFeed(server.url) as feed:
        server.process.send_signal(signal.SIGTERM)
        assert "shutting down" in feed.until_not_ready()
        refused = post(server.url, "/v1/completions", {"prompt": "x"})
        post(replica.url, "/engine/resume")
        events = read_events(response.iter_lines())
    assert refusal(refused) == (503, "shutdown")
    assert refused.headers["retry-after"]
    assert events
    assert not any("error" in event for event in events)
    assert server.process.wait() == 0
    assert get(replica.url, "/ready")["status"] == "ready"


def test_stream_that_outlasts_the_drain_is_told(serve, gateway):
    replica = serve(paused=True)
    server = gateway(replica.url, drain_seconds=0)
    with stream(server.url, *STREAMS["openai"]) as response:
        server.process.send_signal(signal.SIGTERM)
        error, done = read_events(response.iter_lines())
    assert (error["error"]["code"], done) == ("shutdown", "[DONE]")
    assert server.process.wait() == 0


def test_drain_waits_for_lmtp_streams_but_not_for_idle_connections(serve, gateway):
    replica = serve(paused=True)
    server = gateway(replica.url, drain_seconds=1000)
    with Wire(server.url) as wire, Wire(server.url) as idle, ClusterFeed(server.url) as feed:
        idle.send("MODEL_INFO", stream_id=1)
        idle.next("MSG", 1, "model_info")
        wire.queued(1, [120], max_tokens=3)
        server.process.send_signal(signal.SIGTERM)
        feed.until_not_ready()
        post(replica.url, "/engine/resume")
        assert letters(wire.tokens(1)) == "abc"
    assert server.process.wait() == 0
