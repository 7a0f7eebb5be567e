"""HTTP on the wire: requests that follow each other on a connection, and offers to leave HTTP."""

import asyncio
import gzip
import json
from typing import Any

import httpx
import pytest

from engine.core.log.vocabulary import RequestArrived, RequestFinished
from server.http.access import HostCheck
from server.serving import KEEP_ALIVE_SECONDS
from tests.facts import assert_names
from tests.server.harness import Caller, Serve, http, http_request, post, watch

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


# Bodies that cannot be read, and requests that fit no route: an error object, never a 422 or a 500


UTF_16, LATIN, LONG = '{"prompt": "x"}'.encode("utf-16"), b'{"prompt": "\xe9"}', b"9" * 5000
NOT_READ: list[tuple[bytes, dict[str, str], int, list[str]]] = [
    *((one.encode(), {}, 400, []) for one in ("", "{", "[1]", "nonsense", '"text"', "\0", "NaN")),
    *((one, {}, 400, ["JSON", "UTF-8"]) for one in (UTF_16, LATIN, b'{"n": ' + LONG + b"}")),
    (b"prompt=x", {"Content-Type": "text/plain"}, 400, ["Content-Type", "application/json"]),
    (gzip.compress(b'{"prompt": "x"}', mtime=0), {"Content-Encoding": "gzip"}, 415, ["gzip"]),
]


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
@pytest.mark.parametrize(("content", "headers", "status", "facts"), NOT_READ)
def test_a_body_that_cannot_be_read_gets_an_error_naming_what_is_expected(
    url: str, path: str, content: bytes, headers: dict[str, str], status: int, facts: list[str]
) -> None:
    with http(url) as client:
        sent = {"Content-Type": "application/json"} | headers
        answer = client.post(path, content=content, headers=sent)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (status, "invalid_request_error")
    assert_names(error["message"], *facts)
    assert answer.headers.get("accept-encoding") == ("identity" if status == 415 else None)


@pytest.mark.parametrize("kind", ["Application/JSON; charset=utf-8", "application/x+json"])
def test_json_by_another_name_is_json(url: str, kind: str) -> None:
    for body, status, param in (({"prompt": "x"}, 200, None), ({"prompt": 1}, 400, "prompt")):
        with http(url) as client:
            content = json.dumps(body)
            answer = client.post("/v1/completions", content=content, headers={"Content-Type": kind})
        assert answer.status_code == status, answer.text
        assert status == 200 or answer.json()["error"]["param"] == param


def test_unknown_routes_and_wrong_methods(url: str) -> None:
    with http(url) as client:
        for method, path, status, allowed, code in (
            ("GET", "/v1/nothing", 404, None, "not_found"),
            ("GET", "/v1/completions", 405, "POST", "method_not_allowed"),
            ("DELETE", "/health", 405, "GET", "method_not_allowed"),
            ("PUT", "/engine/step", 405, "POST", "method_not_allowed"),
        ):
            answer = client.request(method, path)
            assert (answer.status_code, answer.headers.get("allow")) == (status, allowed)
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
            assert answer.json()["error"]["code"] == code


def test_a_prompt_that_is_longer_than_the_context(serve: Serve) -> None:
    url = serve(max_context=32).url
    for field, body in (
        ("prompt", {"prompt": "x" * 40}),
        ("max_tokens", {"prompt": "x" * 20, "max_tokens": 20}),
    ):
        answer = post(url, "/v1/completions", body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    # Chat without a limit takes what is left of the context.
    answer = post(url, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    assert answer.json()["usage"]["total_tokens"] == 32


# Clients that the server accepts: names against DNS rebinding, and other sites' WebSockets


OURS = [
    "localhost",
    "LOCALHOST:8000",
    "localhost.",
    "localhost:",
    "underglass.localhost:80",
    "127.0.0.1",
    "127.9.9.9:1",
    "[::1]:8000",
    "192.168.1.5:8000",
]
FOREIGN = [
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "notlocalhost",
    "127.0.0.1.evil.example",
    "localhost@evil.example",
    "evil.example#localhost",
    "localhost:8000:8000",
    "[::1",
    "",
]


@pytest.mark.parametrize("host", [*OURS, *FOREIGN])
@pytest.mark.parametrize("path", ["/health", "/", "/v1/models", "/nowhere"])
def test_only_loopback_names_and_addresses_in_digits_pass(url: str, host: str, path: str) -> None:
    with http(url) as client:
        answer = client.get(path, headers={"Host": host})
    if host in OURS:
        assert answer.status_code == (404 if path == "/nowhere" else 200)
        return
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_allowed")
    assert_names(answer.json()["error"]["message"], "--allowed-host")


def test_names_given_at_the_start_pass_too(serve: Serve) -> None:
    url = serve(server={"allowed_host": ["Lab.example.org"], "host": "teacher"}).url
    with http(url) as client:
        for host, status in (
            ("lab.example.org:443", 200),
            ("teacher", 200),
            ("other.example.org", 403),
            ("x.lab.example.org", 403),
        ):
            assert client.get("/health", headers={"Host": host}).status_code == status, host


@pytest.mark.parametrize("hosts", [[], ["localhost", "evil.example"], ["localhost", "localhost"]])
def test_there_is_exactly_one_host_header(url: str, hosts: list[str]) -> None:
    caller = Caller.raw(
        url, "GET /health HTTP/1.1", *(f"Host: {host}" for host in hosts), "Connection: close"
    )
    assert caller.read_all().startswith("HTTP/1.1 400")


def upgrade(headers: dict[str, str], origins: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """HostCheck's answer to a WebSocket's client; "app" if it got through."""
    sent: list[dict[str, Any]] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "app"})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "http_version": "1.1",
        "path": "/",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "extensions": {"websocket.http.response": {}},
    }
    check = HostCheck(app, "127.0.0.1", [], origins)
    asyncio.run(check(scope, None, send))  # type: ignore[arg-type]
    return sent


@pytest.mark.parametrize(
    ("headers", "origins", "passes"),
    [
        ({"Host": "localhost:8000"}, (), True),  # no browser: no Origin
        ({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, (), True),
        ({"Host": "localhost:8000", "Origin": "https://evil.example"}, (), False),
        ({"Host": "localhost:8000", "Origin": "http://localhost:3000"}, (), False),
        ({"Host": "localhost:8000", "Origin": "null"}, (), False),
        ({"Host": "localhost:8000", "Origin": "http://[::1"}, (), False),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, (), False),
        ({"Host": "localhost", "Origin": "https://a.example"}, ("https://a.example",), True),
        ({"Host": "localhost", "Origin": "https://b.example"}, ("https://a.example",), False),
        ({"Host": "localhost", "Origin": "https://b.example"}, ("*",), True),
        ({"Host": "evil.example", "Origin": "https://b.example"}, ("*",), False),
    ],
)
def test_pages_of_other_sites_open_no_websocket(
    headers: dict[str, str], origins: tuple[str, ...], passes: bool
) -> None:
    first, *_ = upgrade(headers, origins)
    if passes:
        assert first["type"] == "app"
    else:
        assert (first["type"], first["status"]) == ("websocket.http.response.start", 403)
