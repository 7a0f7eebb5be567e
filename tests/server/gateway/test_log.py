"""The cluster log: complete, on one clock, and resumable."""

from typing import Any

import pytest

from engine.events.cluster import ClusterStarted, Of, Placed, ReplicaJoined, Routed
from engine.events.cluster_log import ClusterLog, ClusterState
from engine.events.vocabulary import Keyframe, RequestArrived, RequestFinished, StepFinished
from server.process import BackgroundServer
from tests.server.gateway.cluster import ClusterFeed, Serve, cluster_trace
from tests.server.harness import post, trace

Pair = tuple[BackgroundServer, BackgroundServer, BackgroundServer]
PREFIXES = ["The first of the prefixes " * 3, "Another one, also shared " * 3]


@pytest.fixture(scope="module")
def log(pair: Pair) -> ClusterLog:
    """Twelve requests with two prefixes, and what the gateway knows once both replicas are idle."""
    gateway = pair[0]
    with ClusterFeed(gateway.url, past=True) as feed:
        for number in range(12):
            body = {"prompt": f"{PREFIXES[number % 2]}{number}", "max_tokens": 4, "model": "m"}
            assert post(gateway.url, "/v1/completions", body).status_code == 200
        for _ in range(12):
            feed.until(
                lambda event: isinstance(event, Of) and isinstance(event.event, RequestFinished)
            )
    return cluster_trace(gateway.url)


def test_log_splits_into_each_replicas_own(pair: Pair, log: ClusterLog) -> None:
    for replica, server in (("0", pair[1]), ("1", pair[2])):
        own, split = trace(server.url), log.replicas[replica]
        assert split.next_seq == own.next_seq
        assert split.state().core() == own.state().core()
        assert [event for event in split if not isinstance(event, Keyframe)] == own.since(
            split[0].seq + 1
        )


def test_predicted_hits_are_delivered(log: ClusterLog) -> None:
    rows = log.decision_rows
    assert len(rows) == 12
    assert [row.cached_tokens for row in rows] == [row.predicted_tokens for row in rows]
    assert sum(row.predicted_tokens > 0 for row in rows) == 10


def test_a_request_is_routed_before_it_arrives_and_arrives_before_its_tokens(
    log: ClusterLog,
) -> None:
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


def test_feed_begins_with_the_state_and_agrees_with_the_log(pair: Pair, log: ClusterLog) -> None:
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


def test_feed_resumes_after_the_last_event_seen(pair: Pair, log: ClusterLog) -> None:
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


def test_bounded_window_is_a_complete_log(serve: Serve, gateway: Serve) -> None:
    replica = serve(engine={"max_kv_tokens": 4096})
    url = gateway(replica.url, log_window=100).url
    with ClusterFeed(url) as feed:
        for _ in range(10):
            post(url, "/v1/completions", {"prompt": PREFIXES[0], "max_tokens": 9, "model": "m"})
        for _ in range(10):
            feed.until(
                lambda event: isinstance(event, Of) and isinstance(event.event, RequestFinished)
            )
    log = cluster_trace(url)
    head: list[Any] = list(log)[:3]
    assert [type(event) for event in head] == [ClusterStarted, ReplicaJoined, Of]
    assert len(log) == 103
    assert log.replicas["0"].state().core() == trace(replica.url).state().core()
    with ClusterFeed(url, f"{feed.ids[-1].partition(':')[0]}:0") as late:
        late.until_ready("0")
    assert isinstance(late.events[0], ClusterStarted)  # what it has missed is gone


def test_restarted_engine_joins_again(serve: Serve, gateway: Serve) -> None:
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
        feed.until(lambda event: isinstance(event, Of) and isinstance(event.event, RequestFinished))
    assert cluster_trace(url).replicas["0"].state().core() == trace(replica.url).state().core()
