"""The server's protection from its clients: the key, other sites' pages, and endless bodies."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from engine.core.extras import MissingExtraError
from server.api import live
from server.api.live import BOARD, PAGES
from server.http.bodies import BodyLimits
from tests.server.harness import Caller, Serve, get, http, post, start

LIMITS = BodyLimits(bytes=(1 << 20) + 16 * 2049, values=(1 << 16) + 2049)  # 2048 slots of memory
SITE = "https://course.example"


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """A server with a key that names one site."""
    settings = {"api_key": "s3cret", "cors_origin": [SITE]}
    with start(server=settings) as server:
        yield server.url


KEY = {"Authorization": "Bearer s3cret"}
OPEN = {"/health", "/ready", "/ping", "/", "/docs", "/openapi.json"}


def error_of(answer: httpx.Response) -> dict:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def ways_in(url: str) -> list[tuple[str, str]]:
    """Every route there is, by the server's own account."""
    paths = get(url, "/openapi.json")["paths"]
    return [(method, path) for path, methods in paths.items() for method in methods]


def test_every_route_but_health_and_ready_asks_for_the_key(guarded: str) -> None:
    routes = ways_in(guarded)
    assert len(routes) > 12
    with http(guarded) as client:
        for method, path in routes:
            answer = client.request(method, path.replace("{name}", "alphabet"))
            if path in OPEN:
                assert answer.status_code == 200, path
                continue
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
            assert error_of(answer)["code"] == "invalid_api_key"
        assert client.get("/nowhere").status_code == 401  # nor does it learn which routes exist


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer s3cret", 200),
        ("bearer s3cret", 200),
        ("Bearer  s3cret", 200),
        ("Bearer s3cre", 401),
        ("Bearer s3cretx", 401),
        ("Bearer", 401),
        ("s3cret", 401),
        ("Basic s3cret", 401),
        ("Bearer s3cr\xe9t", 401),
    ],
)
def test_the_key_is_the_whole_key(guarded: str, header: str, status: int) -> None:
    with http(guarded) as client:
        headers = {"Authorization": header.encode("latin-1")}
        assert client.get("/v1/models", headers=headers).status_code == status


# CORS


def preflight(url: str, path: str, origin: str, **headers: str) -> httpx.Response:
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"} | headers
    with http(url) as client:
        return client.options(path, headers=asked)


def test_a_named_sites_preflight_needs_no_key(guarded: str) -> None:
    wanted = "authorization,content-type,x-stainless-os"
    answer = preflight(
        guarded, "/v1/chat/completions", SITE, **{"Access-Control-Request-Headers": wanted}
    )
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == SITE
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-headers"] == wanted
    assert "access-control-allow-credentials" not in answer.headers
    assert "origin" in answer.headers["vary"].lower()


def test_a_named_site_reads_answers_and_errors(guarded: str) -> None:
    body = {"prompt": "x", "max_tokens": 1}
    for headers, status in ((KEY, 200), ({}, 401)):
        answer = post(guarded, "/v1/completions", body, Origin=SITE, **headers)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == SITE
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("origin", ["https://evil.example", f"{SITE}.evil.example", "null", ""])
def test_other_sites_get_no_leave(guarded: str, origin: str) -> None:
    refused = preflight(guarded, "/v1/completions", origin)
    assert refused.status_code >= 400
    answer = post(guarded, "/v1/completions", {"prompt": "x"}, Origin=origin, **KEY)
    for one in (refused, answer):
        assert "access-control-allow-origin" not in one.headers


def test_without_named_sites_there_is_no_cors(url: str) -> None:
    refused = preflight(url, "/v1/completions", SITE)
    assert refused.status_code == 405
    assert not any(name.startswith("access-control-") for name in refused.headers)


def test_a_star_lets_every_site_in(serve: Serve) -> None:
    url = serve(server={"cors_origin": ["*"]}).url
    answer = preflight(
        url, "/v1/completions", SITE, **{"Access-Control-Request-Private-Network": "true"}
    )
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-private-network"] == "true"
    assert post(url, "/engine/pause", Origin=SITE).status_code == 200


def test_a_named_site_may_hold_the_engine(guarded: str) -> None:
    assert post(guarded, "/engine/pause", Origin=SITE, **KEY).status_code == 200
    assert post(guarded, "/engine/resume", Origin=SITE, **KEY).status_code == 200
    assert post(guarded, "/engine/pause", Origin="https://evil.example", **KEY).status_code == 403


# Bodies


def received(caller: Caller) -> str:
    """An answer with an error object; the connection stays open after it."""
    data = b""
    while not data.endswith(b"}}"):
        data += caller.socket.recv(65536)
    caller.close()
    return data.decode()


@pytest.mark.parametrize(
    ("key", "announced", "status", "code"),
    [
        *(("s3cret", one, 413, "body_too_large") for one in (LIMITS.bytes + 1, 10**12, 10**18 - 1)),
        ("", 10_000, 401, "invalid_api_key"),
    ],
)
def test_an_announced_body_is_refused_unread(
    guarded: str, key: str, announced: int, status: int, code: str
) -> None:
    caller = Caller.raw(
        guarded,
        "POST /v1/completions HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {key}",
        f"Content-Length: {announced}",
    )
    head, _, body = received(caller).partition("\r\n\r\n")
    assert f" {status} " in head.splitlines()[0], head
    assert json.loads(body)["error"]["code"] == code


def test_a_chunked_body_is_refused_once_it_is_too_long(guarded: str) -> None:
    caller = Caller.raw(
        guarded,
        "POST /v1/completions HTTP/1.1",
        "Host: localhost",
        "Authorization: Bearer s3cret",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
    )
    for _ in range(LIMITS.bytes // 0x10000 + 1):
        caller.socket.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
    answer = received(caller)  # while the body goes on for ever
    assert " 413 " in answer.splitlines()[0]
    assert "body_too_large" in answer


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("[" * 65 + "]" * 65, "too_deep"),
        ("[" * 9000, "too_deep"),
        ('{"a":' * 1500, "too_deep"),
        ('{"prompt": "x", "user": {"a": ' + "[" * 70 + "]" * 70 + "}}", "too_deep"),
        ('{"prompt": "' + "[{" * 100 + '", "max_tokens": 1}', None),  # text is not nesting
        ('{"prompt": "' + '\\"[' * 100 + '", "max_tokens": 1}', None),
        ('{"prompt": ' + json.dumps([[1]] * 100) + ', "max_tokens": 1, "stream": false}', None),
    ],
)
def test_json_that_is_nested_too_deep(guarded: str, content: str, code: str | None) -> None:
    with http(guarded) as client:
        headers = {"Content-Type": "application/json"} | KEY
        answer = client.post("/v1/completions", content=content, headers=headers)
    if code is None:
        assert answer.status_code == 200, answer.text
    else:
        assert (answer.status_code, error_of(answer)["code"]) == (400, code)


# What is hardly HTTP


@pytest.mark.parametrize(
    "head",
    [
        ["NONSENSE"],
        ["GET / HTTP/1.1", "Host: localhost", "X: a\x00b"],
        ["POST /tokenize HTTP/1.1", "Host: localhost", "Content-Length: x"],
        ["POST /tokenize HTTP/1.1", "Host: x", "Content-Length: 5", "Transfer-Encoding: chunked"],
    ],
)
def test_what_is_no_http_is_refused_with_an_error_object(url: str, head: list[str]) -> None:
    answer, _, body = Caller.raw(url, *head).read_all().partition("\r\n\r\n")
    assert answer.startswith("HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "bad_http"


@pytest.mark.parametrize("endless", [b"X: " + b"a" * 70_000, b"X: a\r\n" * 15_000])
def test_headers_have_an_end(url: str, endless: bytes) -> None:
    caller = Caller.raw(url, "GET /health HTTP/1.1", "Host: localhost", "Connection: close")
    assert " 200 " in caller.read_all().splitlines()[0]
    caller = Caller.open(url)
    caller.socket.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + endless)
    answer, _, body = caller.read_all().partition("\r\n\r\n")
    assert answer.startswith("HTTP/1.1 431 ")
    assert json.loads(body)["error"]["code"] == "head_too_large"


@pytest.fixture(scope="module")
def impatient() -> Iterator[str]:
    """A server that waits for no request longer than a moment."""
    with start(head_seconds=0.2, server={"stall_seconds": 0.2}) as server:
        yield server.url


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: a",
        b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    ],
)
def test_a_request_that_does_not_arrive_is_hung_up_on(impatient: str, begun: bytes) -> None:
    caller = Caller.open(impatient)
    caller.socket.sendall(begun)
    answer, _, body = caller.read_all().partition("\r\n\r\n")
    assert answer.startswith("HTTP/1.1 408 ")
    assert json.loads(body)["error"]["code"] == "request_timeout"


def test_a_second_request_that_does_not_arrive_is_hung_up_on_as_well(impatient: str) -> None:
    caller = Caller.open(impatient)
    whole = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    caller.socket.sendall(whole + b"GET /health HTTP/1.1\r\n")
    answers = caller.read_all()
    assert answers.startswith("HTTP/1.1 200 ")
    assert "HTTP/1.1 408 " in answers


def test_an_idle_connection_is_closed_without_a_response(impatient: str) -> None:
    assert Caller.open(impatient).read_all() == ""


def test_streams_outlast_the_time_for_a_request(impatient: str) -> None:
    """Its time ends with its head: what is written and read after it is none of that."""
    post(impatient, "/engine/pause")
    caller = Caller(impatient, "/v1/completions", {"prompt": "x", "max_tokens": 3})
    assert Caller.open(impatient).read_all() == ""  # so much time has passed
    post(impatient, "/engine/resume")
    assert '"full_text":"abc"' in caller.read_all()


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/", "/openapi.json", "/nowhere"])
def test_head_answers_as_get_without_a_body(url: str, path: str) -> None:
    with http(url) as client:
        head, got = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    for name in ("content-type", "content-length"):
        assert head.headers[name] == got.headers[name]


def test_a_head_of_the_endless_feed_is_refused(url: str) -> None:
    with http(url) as client:
        assert client.head("/events").status_code == 405


# The live page's files: open to a browser, complete without any other server


SHOWN = [path for path in PAGES.iterdir() if path.suffix in (".html", ".css")]
FILES = [f"/page/{path.name}" for path in SHOWN] + ["/board/live_page.js", "/board/gateway_page.js"]


@pytest.mark.parametrize("path", ["/", *FILES])
def test_a_browser_gets_the_page_without_a_key_and_what_it_draws_only_with_one(
    guarded: str, path: str
) -> None:
    with http(guarded) as client:
        answer = client.get(path)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")
        assert client.get("/events").status_code == 401
    assert post(guarded, "/engine/pause").status_code == 401


def test_nothing_is_loaded_from_elsewhere(url: str) -> None:
    with http(url) as client:
        page, docs = client.get("/"), client.get("/docs")
    policy = dict(
        part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert docs.headers["content-security-policy"].startswith("default-src 'none'")
    for path in SHOWN:
        addresses = re.findall(
            r"""(?:src|href)="([^"]*)"|from "([^"]*)"|url\(([^)]*)\)""", path.read_text()
        )
        for address in filter(None, (one for found in addresses for one in found)):
            assert address.startswith(("/", "data:")) and not address.startswith("//"), address


def test_only_the_pages_own_files_are_served(url: str) -> None:
    (PAGES / "live.html").resolve(strict=True)
    with http(url) as client:
        for path in (
            "/page/../app.py",
            "/page/%2e%2e/app.py",
            "/board/..%2fhtml.py",
            "/page/",
            "/page/x",
        ):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert client.get("/board/live_page.js").content == (BOARD / "live_page.js").read_bytes()


def test_a_missing_bundle_is_an_error_that_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "BOARD", tmp_path)
    with pytest.raises(MissingExtraError, match="`make setup`"):
        live.install_page(FastAPI())
