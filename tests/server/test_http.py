"""HTTP on the wire: requests that follow each other on a connection, and offers to leave HTTP."""

import gzip
import json
from typing import Any

import pytest

from engine.core.log.vocabulary import RequestArrived, RequestFinished
from server.http.access import HostCheck
from tests.facts import assert_names
from tests.server.harness import Caller, fetch, http_request, post, refusal, watch

BODY = {"prompt": "x", "stream": False, "max_tokens": 3}


def text_of(answer: str) -> str:
    text: str = json.loads(answer.partition("\r\n\r\n")[2])["choices"][0]["text"]
    return text


def test_requests_that_do_not_wait_for_answers_are_answered_in_order(url):
    caller = Caller.open(url)
    asked = range(1, 21)  # more than are read at once
    bodies = [{"prompt": "x", "stream": False, "max_tokens": number} for number in asked]
    caller.socket.sendall(b"".join(http_request("/v1/completions", body) for body in bodies))
    caller.socket.sendall(http_request("/health", {}, "Connection: close"))
    answers = caller.read_all().split("HTTP/1.1 ")[1:]
    assert [len(text_of(one)) for one in answers[:-1]] == [*asked]
    assert answers[-1].startswith("405")


@pytest.mark.parametrize("nonsense", [b"\0", b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000])
def test_nonsense_after_a_request_ends_the_connection_and_gets_into_no_answer(serve, nonsense):
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
def test_an_offer_to_leave_http_is_ignored_and_the_request_answered(url, protocol, at_once):
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


def test_a_websocket_waits_for_no_answer(serve):
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


def test_this_is_no_proxy(url):
    caller = Caller.raw(url, "CONNECT example.org:443 HTTP/1.1", "Host: example.org:443")
    assert caller.read_all().startswith("HTTP/1.1 400 ")


def test_an_https_request_to_the_http_port_is_logged(serve):
    server = serve()
    caller = Caller.open(server.url)
    caller.socket.sendall(bytes.fromhex("16030100f1010000ed0303"))  # how TLS begins
    assert caller.read_all().startswith("HTTP/1.1 400 ")
    server.stop()
    assert "https" in server.output().lower()


UTF_16, LATIN, LONG = '{"prompt": "x"}'.encode("utf-16"), b'{"prompt": "\xe9"}', b"9" * 5000
NOT_READ: list[tuple[bytes, dict[str, str], int, list[str]]] = [
    *((one.encode(), {}, 400, []) for one in ("", "{", "[1]", "nonsense", '"text"', "\0", "NaN")),
    *((one, {}, 400, ["JSON", "UTF-8"]) for one in (UTF_16, LATIN, b'{"n": ' + LONG + b"}")),
    (b'{"prompt": true}', {}, 400, ["got true"]),
    (b"prompt=x", {"Content-Type": "text/plain"}, 400, ["Content-Type", "application/json"]),
    (gzip.compress(b'{"prompt": "x"}', mtime=0), {"Content-Encoding": "gzip"}, 415, ["gzip"]),
]


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
@pytest.mark.parametrize(("content", "headers", "status", "facts"), NOT_READ)
def test_a_body_that_cannot_be_read_gets_an_error_naming_what_is_expected(
    url, path, content, headers, status, facts
):
    sent = {"Content-Type": "application/json"} | headers
    answer = fetch(url, path, "POST", content=content, headers=sent)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (status, "invalid_request_error")
    assert_names(error["message"], *facts)
    assert answer.headers.get("accept-encoding") == ("identity" if status == 415 else None)


@pytest.mark.parametrize("kind", ["Application/JSON; charset=utf-8", "application/x+json"])
def test_json_by_another_name_is_json(url, kind):
    for body, status, param in (({"prompt": "x"}, 200, None), ({"prompt": 1}, 400, "prompt")):
        sent = {"content": json.dumps(body), "headers": {"Content-Type": kind}}
        answer = fetch(url, "/v1/completions", "POST", **sent)
        assert answer.status_code == status, answer.text
        assert status == 200 or answer.json()["error"]["param"] == param


def test_unknown_routes_and_wrong_methods(url):
    assert refusal(fetch(url, "/v1/nothing")) == (404, "not_found")
    for method, path, allowed in (
        ("GET", "/v1/completions", "POST"),
        ("DELETE", "/health", "GET"),
        ("PUT", "/engine/step", "POST"),
    ):
        answer = fetch(url, path, method)
        assert refusal(answer) == (405, "method_not_allowed")
        assert answer.headers["allow"] == allowed


def test_a_chat_without_a_limit_takes_what_is_left_of_the_context(serve):
    url = serve(max_context=32).url
    answer = post(url, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    assert answer.json()["usage"]["total_tokens"] == 32


OURS = """
localhost LOCALHOST:8000 localhost. localhost: underglass.localhost:80 127.0.0.1 127.9.9.9:1 [::1]:8000
192.168.1.5:8000
""".split()
FOREIGN = """
evil.example evil.example:8000 localhost.evil.example notlocalhost 127.0.0.1.evil.example
localhost@evil.example evil.example#localhost localhost:8000:8000 [::1
""".split()


@pytest.mark.parametrize("host", [*OURS, *FOREIGN, ""])
@pytest.mark.parametrize("path", ["/health", "/", "/v1/models", "/nowhere"])
def test_only_loopback_names_and_addresses_in_digits_pass(url, host, path):
    answer = fetch(url, path, headers={"Host": host})
    if host in OURS:
        assert answer.status_code == (404 if path == "/nowhere" else 200)
        return
    assert refusal(answer) == (403, "host_not_allowed")
    assert_names(answer.json()["error"]["message"], "--allowed-host")


def test_names_given_at_the_start_pass_too(serve):
    url = serve(server={"allowed_host": ["Lab.example.org"], "host": "teacher"}).url
    for host, status in (
        ("lab.example.org:443", 200),
        ("teacher", 200),
        ("other.example.org", 403),
        ("x.lab.example.org", 403),
    ):
        assert fetch(url, "/health", headers={"Host": host}).status_code == status, host


@pytest.mark.parametrize("hosts", [[], ["localhost", "evil.example"], ["localhost", "localhost"]])
def test_there_is_exactly_one_host_header(url, hosts):
    caller = Caller.raw(
        url, "GET /health HTTP/1.1", *(f"Host: {host}" for host in hosts), "Connection: close"
    )
    assert caller.read_all().startswith("HTTP/1.1 400")


async def upgrade(headers: dict[str, str], origins: tuple[str, ...]) -> tuple[str, int | None]:
    """The type and the status of HostCheck's answer to a WebSocket's client, or of the app's."""
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
    await check(scope, None, send)  # type: ignore[arg-type]
    return sent[0]["type"], sent[0].get("status")


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
async def test_pages_of_other_sites_open_no_websocket(headers, origins, passes):
    expected = ("app", None) if passes else ("websocket.http.response.start", 403)
    assert await upgrade(headers, origins) == expected
