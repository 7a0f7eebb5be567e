"""HTTP on the wire: requests that follow each other on a connection, and offers to leave HTTP."""

import json

import httpx
import pytest

from engine.events.vocabulary import RequestArrived, RequestFinished
from server.cli.serving import KEEP_ALIVE_SECONDS
from tests.server.harness import Caller, Serve, http_request, watch

BODY = {"prompt": "x", "stream": False, "max_tokens": 3}


def text_of(answer: str) -> str:
    """The text of a completion as it came over the wire."""
    text: str = json.loads(answer.partition("\r\n\r\n")[2])["choices"][0]["text"]
    return text


def test_requests_that_do_not_wait_for_answers_are_answered_in_order(url: str) -> None:
    caller = Caller.open(url)
    asked = range(1, 21)  # more than are read at once
    bodies = [{"prompt": "x", "stream": False, "max_tokens": number} for number in asked]
    caller.socket.sendall(b"".join(http_request("/v1/completions", body) for body in bodies))
    caller.socket.sendall(http_request("/health", {}, "Connection: close"))
    answers = caller.read_all().split("HTTP/1.1 ")[1:]
    assert [len(text_of(one)) for one in answers[:-1]] == [*asked]
    assert answers[-1].startswith("405")


@pytest.mark.parametrize("nonsense", [b"\0", b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000])
def test_nonsense_after_a_request_ends_the_connection_and_gets_into_no_answer(
    serve: Serve, nonsense: bytes
) -> None:
    url = serve(paused=True).url
    with watch(url) as feed:
        caller = Caller.open(url)
        caller.socket.sendall(http_request("/v1/completions", {"prompt": "x"}))
        feed.until_kind(RequestArrived)
        caller.socket.sendall(nonsense)
        assert feed.until_kind(RequestFinished).reason == "abort"
        try:
            answered = caller.read_all()
        except ConnectionError:  # it was closed while there was still something to read
            return
        assert answered.count("HTTP/1.1 ") == 1


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.0"])
@pytest.mark.parametrize("at_once", [True, False])
def test_an_offer_to_leave_http_is_ignored_and_the_request_answered(
    url: str, protocol: str, at_once: bool
) -> None:
    """Java's HTTP client and `curl --http2` offer HTTP/2 with their first request."""
    caller = Caller.open(url)
    offer = ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol}", "HTTP2-Settings: AAMA")
    asked = http_request("/v1/completions", BODY, *offer)
    if at_once:
        caller.socket.sendall(asked)
    else:
        head, _, body = asked.partition(b"\r\n\r\n")
        for part in (head[:20], head[20:] + b"\r\n\r\n", body[:5], body[5:]):
            caller.socket.sendall(part)
    caller.socket.sendall(http_request("/v1/completions", BODY, "Connection: close"))
    first, second = caller.read_all().split("HTTP/1.1 200 OK")[1:]
    assert text_of(first) == text_of(second) == "abc"


def test_a_websocket_waits_for_no_answer(serve: Serve) -> None:
    """It would take the connection away from the request that is being answered."""
    url = serve(paused=True).url
    with watch(url) as feed:
        caller = Caller.open(url)
        caller.socket.sendall(http_request("/v1/completions", BODY))
        feed.until_kind(RequestArrived)
        caller.socket.sendall(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        assert feed.until_kind(RequestFinished).reason == "abort"
        assert caller.read_all() == ""


def test_the_server_keeps_a_connection_for_longer_than_clients_do() -> None:
    kept_by_clients = httpx.Limits().keepalive_expiry
    assert kept_by_clients is not None
    assert kept_by_clients < KEEP_ALIVE_SECONDS


def test_this_is_no_proxy(url: str) -> None:
    caller = Caller.raw(url, "CONNECT example.org:443 HTTP/1.1", "Host: example.org:443")
    assert caller.read_all().startswith("HTTP/1.1 400 ")


def test_an_https_request_to_the_http_port_is_logged(serve: Serve) -> None:
    server = serve()
    caller = Caller.open(server.url)
    caller.socket.sendall(bytes.fromhex("16030100f1010000ed0303"))  # how TLS begins
    assert caller.read_all().startswith("HTTP/1.1 400 ")
    server.stop()
    assert "https" in server.output().lower()
