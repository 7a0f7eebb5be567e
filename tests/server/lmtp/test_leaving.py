"""A client that leaves or reads nothing costs no other client anything; other sites are rejected."""

import json
import socket

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from engine.events.vocabulary import RequestArrived, RequestFinished
from tests.server.harness import TIMEOUT, Feed, Serve, get, post, trace, watch
from tests.server.lmtp.wire import Wire, letters


@pytest.mark.parametrize("how", ["close", "drop"])
@pytest.mark.parametrize("steps", [0, 1, 5], ids=["waiting", "prefilling", "active"])
def test_leaving_frees_every_stream_of_the_connection(serve: Serve, steps: int, how: str) -> None:
    url = serve(paused=True, engine={"token_budget": 64, "block_size": 4}).url
    with Feed(url) as feed, Wire(url) as wire:
        feed.keyframe()
        for stream in range(3):
            wire.generate(stream, [120 + stream] * 50, max_tokens=50)
        feed.until_kind(RequestArrived, 3)
        if steps:
            post(url, "/engine/step", {"steps": steps})
        before = get(url, "/health")["step"]
        wire.socket.close() if how == "close" else wire.socket.socket.close()
        for _ in range(3):
            assert feed.until_kind(RequestFinished).reason == "abort"
        health = get(url, "/health")
        assert health["step"] == before  # it took no step to notice
        assert health["blocks"]["free"] + health["blocks"]["cached"] == health["blocks"]["total"]


def test_a_client_that_does_not_read_is_disconnected_without_delaying_others(serve: Serve) -> None:
    """Its streams end; those of others, and the next connection, do not notice."""
    url = serve(
        engine={"max_kv_tokens": 1 << 16, "max_batch_size": 16}, server={"buffer_bytes": 1 << 18}
    ).url
    # What the kernel holds for it is bounded, and it takes in one frame and no more.
    host, _, port = url.removeprefix("http://").partition(":")
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.connect((host, int(port)))
    with Wire(url, sock=narrow, max_queue=1) as idle, Wire(url) as wire:
        for stream in range(8):
            idle.generate(stream, [120 + stream], max_tokens=4000)
        wire.generate(1, [97], max_tokens=30)
        assert len(wire.tokens(1)) == 30
        with watch(url) as feed:
            while feed.state.requests:
                next(iter(feed))
        reasons = [one.reason for one in trace(url).of(RequestFinished)]
    assert reasons.count("abort") >= 4
    assert reasons.count("length") >= 1


def test_a_stopping_server_lets_streams_finish_and_takes_no_more(serve: Serve) -> None:
    server = serve(paused=True)
    with Wire(server.url) as wire, Feed(server.url) as feed:
        wire.generate(1, [120], max_tokens=5)
        wire.next("MSG", 1, "request")
        server.process.terminate()
        feed.until_not_ready()
        assert letters(wire.tokens(1)) == "abcde"
        with pytest.raises(ConnectionClosed):
            wire.receive()
    assert server.process.wait(TIMEOUT) == 0


@pytest.mark.parametrize("path", ["/", "/lmtp"])
def test_connections_without_the_configured_key_get_401(serve: Serve, path: str) -> None:
    url = serve(server={"api_key": "secret"}).url
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
        with pytest.raises(InvalidStatus) as refused, Wire(url, path, additional_headers=headers):
            pass
        assert refused.value.response.status_code == 401
        error = json.loads(refused.value.response.body)["error"]
        assert error["code"] == "invalid_api_key"
    with Wire(url, path, additional_headers={"Authorization": "Bearer secret"}) as wire:
        wire.generate(1, [120], max_tokens=1)
        assert letters(wire.tokens(1)) == "a"


def test_a_key_may_be_part_of_the_address(serve: Serve) -> None:
    """LMQL's client takes only a URL like http://user:KEY@host, which becomes Basic authentication."""
    url = serve(server={"api_key": "se:cret"}).url
    with Wire(url.replace("://", "://any:se%3Acret@")) as wire:
        wire.generate(1, [120], max_tokens=1)
        assert letters(wire.tokens(1)) == "a"
    with pytest.raises(InvalidStatus), Wire(url.replace("://", "://se:cret@")):
        pass


def test_a_page_of_another_site_opens_no_socket(url: str) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}):
        with pytest.raises(InvalidStatus) as refused, Wire(url, additional_headers=headers):
            pass
        assert refused.value.response.status_code == 403
    with Wire(url, additional_headers={"Origin": url}) as wire:
        wire.generate(1, [120], max_tokens=1)
        assert letters(wire.tokens(1)) == "a"


def test_a_frame_that_is_too_large_ends_its_connection_only(url: str) -> None:
    with Wire(url) as wire, Wire(url) as other:
        wire.generate(1, [120] * 300_000)
        with pytest.raises(ConnectionClosed) as closed:
            wire.receive()
        assert closed.value.rcvd.code == 1009
        other.generate(1, [120], max_tokens=1)
        assert letters(other.tokens(1)) == "a"


def test_a_binary_frame_ends_the_connection(url: str) -> None:
    with Wire(url) as wire:
        wire.socket.send(b"GENERATE {}")
        with pytest.raises(ConnectionClosed) as closed:
            wire.receive()
        assert closed.value.rcvd.code == 1003
