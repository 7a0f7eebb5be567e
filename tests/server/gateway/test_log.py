"""The cluster log: complete, on one clock, and resumable."""

import asyncio
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from engine.cluster.cluster_log import ClusterLog, ClusterState
from engine.cluster.events import ClusterStarted, Of, Placed, ReplicaJoined, ReplicaLeft, Routed
from engine.core.log.vocabulary import Keyframe, RequestArrived, RequestFinished, StepFinished
from server.gateway.follower import Times
from server.gateway.replica_set import Member, UrlSet
from server.process import BackgroundServer
from tests.server.gateway.cluster import (
    Announced,
    ClusterFeed,
    cluster_trace,
    happened,
    started,
    until_in,
)
from tests.server.harness import Feed, limit_files, metrics, post, trace, until
from tests.server.lmtp.wire import Wire, letters
from visualizer import read

Pair = tuple[BackgroundServer, BackgroundServer, BackgroundServer]
PREFIXES = ["The first of the prefixes " * 3, "Another one, also shared " * 3]


def has_finished(event: object) -> bool:
    return isinstance(event, Of) and isinstance(event.event, RequestFinished)


@pytest.fixture(scope="module")
def log(pair: Pair) -> ClusterLog:
    """Twelve requests with two prefixes, and what the gateway knows once both replicas are idle."""
    gateway = pair[0]
    with ClusterFeed(gateway.url, past=True) as feed:
        for number in range(12):
            body = {"prompt": f"{PREFIXES[number % 2]}{number}", "max_tokens": 4, "model": "m"}
            assert post(gateway.url, "/v1/completions", body).status_code == 200
        for _ in range(12):
            feed.until(has_finished)
    return cluster_trace(gateway.url)


def test_log_splits_into_each_replicas_own(pair, log):
    for replica, server in (("0", pair[1]), ("1", pair[2])):
        own, split = trace(server.url), log.replicas[replica]
        assert split.next_seq == own.next_seq
        assert split.state().core() == own.state().core()
        assert [event for event in split if not isinstance(event, Keyframe)] == own.since(
            split[0].seq + 1
        )


def test_predicted_hits_are_delivered(log):
    rows = read(log).decision_rows
    assert len(rows) == 12
    assert [row.cached_tokens for row in rows] == [row.predicted_tokens for row in rows]
    assert sum(row.predicted_tokens > 0 for row in rows) == 10


def test_a_request_is_routed_before_it_arrives_and_arrives_before_its_tokens(log):
    joined = {event.replica: event.t for event in log if isinstance(event, ReplicaJoined)}
    routed = {event.request: event.t["at"] for event in log if isinstance(event, Routed)}
    placed = {
        (event.replica, event.its_request): event.request
        for event in log
        if isinstance(event, Placed)
    }
    checked = 0
    for event in log:
        if not isinstance(event, Of):
            continue
        clock = joined[event.replica]
        # A clock is known up to half a round trip.
        if isinstance(event.event, RequestArrived):
            request = placed[event.replica, event.event.request]
            at = event.event.t["at"] + clock["offset"]
            assert at >= routed[request] - clock["rtt"] / 2
            checked += 1
        elif isinstance(event.event, StepFinished):
            for row in event.event.tokens:
                request = placed[event.replica, row.request]
                at = event.event.t["end"] + clock["offset"]
                assert at >= routed[request] - clock["rtt"] / 2
    assert checked == 12


def test_feed_begins_with_the_state_and_agrees_with_the_log(pair, log):
    with ClusterFeed(pair[0].url) as feed:
        feed.until_ready("0", "1")
    assert isinstance(feed.events[0], ClusterStarted)
    assert {event.replica for event in feed.events if isinstance(event, ReplicaJoined)} == {
        "0",
        "1",
    }
    state = ClusterState()
    for event in feed.events:
        state.add(event)
    for replica, one in log.replicas.items():
        assert state.states[replica].core() == one.state().core()


def test_feed_resumes_after_the_last_event_seen(pair, log):
    url = pair[0].url
    with ClusterFeed(url, past=True) as feed:
        for _, event in zip(range(len(log)), feed, strict=False):
            assert event is not None
    middle = len(log) // 2
    with ClusterFeed(url, feed.ids[middle]) as resumed:
        resumed.until_ready("0", "1")
    assert resumed.events == list(log)[middle + 1 :]
    with ClusterFeed(url, "another-run:3") as other:
        other.until_ready("0", "1")
    assert isinstance(other.events[0], ClusterStarted)


def test_bounded_window_is_a_complete_log(serve, gateway):
    replica = serve(engine={"max_kv_tokens": 4096})
    url = gateway(replica.url, log_window=100).url
    with ClusterFeed(url) as feed:
        for _ in range(10):
            post(url, "/v1/completions", {"prompt": PREFIXES[0], "max_tokens": 9, "model": "m"})
        for _ in range(10):
            feed.until(has_finished)
    log = cluster_trace(url)
    head: list[Any] = list(log)[:3]
    assert [type(event) for event in head] == [ClusterStarted, ReplicaJoined, Of]
    assert len(log) == 103
    assert log.replicas["0"].state().core() == trace(replica.url).state().core()
    with ClusterFeed(url, f"{feed.ids[-1].partition(':')[0]}:0") as late:
        late.until_ready("0")
    assert isinstance(late.events[0], ClusterStarted)  # what it has missed is gone


def test_restarted_engine_joins_again(serve, gateway):
    replica = serve()
    url = gateway(replica.url).url
    post(url, "/v1/completions", {"prompt": "x", "max_tokens": 1, "model": "m"})
    with ClusterFeed(url) as feed:
        feed.until_ready("0")
        assert post(replica.url, "/engine/restart", {}).status_code == 200
        feed.until(lambda event: isinstance(event, ReplicaJoined) and event.t["at"] > 0)
        body = {"prompt": "x", "max_tokens": 1, "model": "m"}
        feed.until_ready("0")
        assert post(url, "/v1/completions", body).status_code == 200
        feed.until(has_finished)
    assert cluster_trace(url).replicas["0"].state().core() == trace(replica.url).state().core()


def test_the_trace_file_has_the_whole_log_and_the_next_gateway_begins_another(
    serve, gateway, tmp_path
):
    replica, path = serve(), tmp_path / "run.jsonl"
    body = {"prompt": "x", "max_tokens": 3, "model": "m", "user": "Ada"}
    server = gateway(replica.url, trace_file=path)
    with ClusterFeed(server.url, past=True) as feed:
        post(server.url, "/v1/completions", body)
        feed.until(has_finished)
    server.stop()
    whole = ClusterLog.load(path)
    assert list(whole)[: len(feed.events)] == feed.events
    assert not any(isinstance(event, ReplicaLeft) for event in whole)
    old = path.read_bytes()
    later, second = gateway(replica.url, trace_file=path, trace_text="off"), path.with_stem("run-2")
    until(
        later.url,
        "/ready",
        lambda _: second.read_bytes().endswith(b"}\n") and len(ClusterLog.load(second)) == 3,
    )
    limit_files(later, second.stat().st_size)
    post(later.url, "/v1/completions", body)
    until_told = "gateway: the trace file run-2.jsonl is no longer written"
    until(later.url, "/ready", lambda told: until_told in told.json()["trace_error"])
    assert metrics(later.url)[("cluster:gateway_trace_failed",)] == 1
    later.stop()
    assert path.read_bytes() == old
    [*_, last] = [one.event for one in ClusterLog.load(second) if isinstance(one, Of)]
    assert isinstance(last, Keyframe) and last.state.requests == []


def test_connection_keeps_its_buffers_because_it_is_pinned(pair):
    with Wire(pair[0].url, "/?client=Ada") as wire:
        for stream, fields in enumerate(({"keep": "story"}, {"from": "story"})):
            assert wire.say(stream, "x", max_tokens=3, **fields) == "abc"
    *_, routed = [one for one in cluster_trace(pair[0].url) if isinstance(one, Routed)]
    assert (routed.reason, routed.label) == ("pinned", "Ada")
    arrived = trace(pair[1 + int(routed.replica)].url).of(RequestArrived)[-2:]
    assert [(one.label, len(one.prompt)) for one in arrived] == [("Ada", 2), ("Ada", 6)]
    log = cluster_trace(pair[0].url)
    placed = [(one.request, one.its_request) for one in log if isinstance(one, Placed)][-2:]
    assert placed == [(routed.request, one.request) for one in arrived]
    assert {row.request for row in read(log).token_rows if row.label == "Ada"} == {routed.request}
    last = read(log).decision_rows[-1]
    assert (last.reason, last.its_request) == ("pinned", None)


def test_streams_of_a_connection_are_continued_unless_it_has_buffers(serve, gateway):
    dying, other = serve(paused=True), serve(paused=True)
    server = gateway(dying.url, other.url)
    with Wire(server.url) as wire, Wire(server.url) as keeping:
        for stream in range(3):
            wire.queued(stream, [120], max_tokens=6)
        keeping.queued(1, [120], keep="story")
        for replica in (dying, other):
            post(replica.url, "/engine/step", {"steps": 3})
        begun = [letters([wire.next("TOKEN", stream) for _ in "abc"]) for stream in range(3)]
        dying.process.kill()
        with ClusterFeed(server.url, past=True) as feed:
            feed.until(lambda event: isinstance(event, Routed) and event.output == 9)
        wire.queued(3, [120], max_tokens=2)
        post(other.url, "/engine/step", {"steps": 3})
        assert begun == ["abc"] * 3
        assert [letters(wire.tokens(stream)) for stream in range(4)] == ["def"] * 3 + ["ab"]
        assert not wire.items  # the client is told once that a stream is queued
        other.process.kill()
        assert keeping.error(1)["retry"] is True


def test_client_that_leaves_is_aborted(serve, gateway):
    replica = serve(paused=True)
    url = gateway(replica.url).url

    with Feed(replica.url) as feed:
        with Wire(url) as wire:
            wire.queued(1, [120])
        assert feed.until_kind(RequestFinished).reason == "abort"
    assert post(url, "/engine/resume").status_code == 200


def test_no_replica_rejects_the_handshake(gateway):
    url = gateway("http://127.0.0.1:9", wait=False).url
    with pytest.raises(InvalidStatus) as caught:
        Wire(url)
    assert caught.value.response.status_code == 503


async def test_clock_that_has_drifted_is_logged_again(serve):
    async with started(UrlSet([serve().url]), times=Times(between=0.01)) as gateway:
        await until_in(gateway, lambda: gateway.ready)
        own = gateway.now
        gateway.now = lambda: own() + 5_000_000  # five seconds
        await until_in(gateway, lambda: len(happened(gateway, ReplicaJoined)) > 1)
        before, after = (event.t["offset"] for event in happened(gateway, ReplicaJoined)[:2])
    assert abs(after - before - 5_000_000) < 1_000_000


async def test_removed_member_gets_no_requests_but_may_finish(serve):
    replica = serve()
    async with started(members := Announced()) as gateway:
        await asyncio.sleep(0)
        for id_ in "ab":
            members.add(Member(id_, replica.url))
        await until_in(gateway, lambda: gateway.ready == ["a", "b"])
        members.remove("a", "scaled down")
        assert gateway.ready == ["b"] and gateway.followers["a"].joined
        members.remove("b", "scaled down")
        assert gateway.ready == ["a", "b"]  # better than none
        await asyncio.to_thread(replica.stop)
        await until_in(gateway, lambda: len(happened(gateway, ReplicaLeft)) == 2)
        assert {event.why for event in happened(gateway, ReplicaLeft)} == {"scaled down"}
        assert not gateway.followers
