"""The server's protection from its clients: the key, other sites' pages, and endless bodies."""

import json
import re
from collections.abc import Iterator

import httpx
import pytest

from server.api.live import PAGES
from server.http.bodies import BodyLimits
from tests.server.harness import Caller, fetch, get, http, post, refusal, start
from visualizer.front_end import built

LIMITS = BodyLimits(bytes=(1 << 20) + 16 * 2049, values=(1 << 16) + 2049)  # 2048 slots of memory
SITE = "https://course.example"


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    settings = {"api_key": "s3cret", "cors_origin": [SITE]}
    with start(server=settings) as server:
        yield server.url


KEY = {"Authorization": "Bearer s3cret"}
OPEN = {"/health", "/ready", "/ping", "/", "/docs", "/openapi.json"}


def test_every_route_but_health_and_ready_asks_for_the_key(guarded):
    paths = get(guarded, "/openapi.json")["paths"]
    routes = [(method, path) for path, methods in paths.items() for method in methods]
    assert len(routes) > 12
    with http(guarded) as client:
        for method, path in routes:
            answer = client.request(method, path.replace("{name}", "alphabet"))
            if path in OPEN:
                assert answer.status_code == 200, path
                continue
            assert refusal(answer) == (401, "invalid_api_key"), path
            assert answer.headers["www-authenticate"] == "Bearer"
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
def test_the_key_is_the_whole_key(guarded, header, status):
    headers = {"Authorization": header.encode("latin-1")}
    assert fetch(guarded, "/v1/models", headers=headers).status_code == status


def preflight(url: str, path: str, origin: str, **headers: str) -> httpx.Response:
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"} | headers
    return fetch(url, path, "OPTIONS", headers=asked)


def test_a_named_sites_preflight_needs_no_key(guarded):
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


def test_a_named_site_reads_answers_and_errors(guarded):
    body = {"prompt": "x", "max_tokens": 1}
    for headers, status in ((KEY, 200), ({}, 401)):
        answer = post(guarded, "/v1/completions", body, Origin=SITE, **headers)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == SITE
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("origin", ["https://evil.example", f"{SITE}.evil.example", "null", ""])
def test_other_sites_get_no_leave(guarded, origin):
    refused = preflight(guarded, "/v1/completions", origin)
    assert refused.status_code >= 400
    answer = post(guarded, "/v1/completions", {"prompt": "x"}, Origin=origin, **KEY)
    for one in (refused, answer):
        assert "access-control-allow-origin" not in one.headers


def test_a_star_lets_every_site_in(serve):
    url = serve(server={"cors_origin": ["*"]}).url
    answer = preflight(
        url, "/v1/completions", SITE, **{"Access-Control-Request-Private-Network": "true"}
    )
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-private-network"] == "true"
    assert post(url, "/engine/pause", Origin=SITE).status_code == 200


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
def test_an_announced_body_is_refused_unread(guarded, key, announced, status, code):
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


def test_a_chunked_body_is_refused_once_it_is_too_long(guarded):
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
        ('{"prompt": "' + "[{" * 100 + '", "max_tokens": 1}', None),  # text is not nesting
        ('{"prompt": ' + json.dumps([[1]] * 100) + ', "max_tokens": 1, "stream": false}', None),
    ],
)
def test_json_that_is_nested_too_deep(guarded, content, code):
    headers = {"Content-Type": "application/json"} | KEY
    answer = fetch(guarded, "/v1/completions", "POST", content=content, headers=headers)
    if code is None:
        assert answer.status_code == 200, answer.text
    else:
        assert refusal(answer) == (400, code)


@pytest.mark.parametrize(
    "head",
    [
        ["NONSENSE"],
        ["GET / HTTP/1.1", "Host: localhost", "X: a\x00b"],
        ["POST /tokenize HTTP/1.1", "Host: localhost", "Content-Length: x"],
        ["POST /tokenize HTTP/1.1", "Host: x", "Content-Length: 5", "Transfer-Encoding: chunked"],
    ],
)
def test_what_is_no_http_is_refused_with_an_error_object(url, head):
    answer, _, body = Caller.raw(url, *head).read_all().partition("\r\n\r\n")
    assert answer.startswith("HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "bad_http"


@pytest.mark.parametrize("endless", [b"X: " + b"a" * 70_000, b"X: a\r\n" * 15_000])
def test_headers_have_an_end(url, endless):
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


WHOLE = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW: dict[bytes, list[str]] = {  # what is sent, and the statuses of the answers
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: a": ["408"],
    b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{": ["408"],
    WHOLE + b"GET /health HTTP/1.1\r\n": ["200", "408"],
    b"": [],
}


@pytest.mark.parametrize("begun", SLOW)
def test_a_request_that_does_not_arrive_is_hung_up_on(impatient, begun):
    caller = Caller.open(impatient)
    caller.socket.sendall(begun)
    answers = caller.read_all()
    assert re.findall(r"HTTP/1\.1 (\d+) ", answers) == SLOW[begun]
    assert ("request_timeout" in answers) == ("408" in SLOW[begun])


def test_streams_outlast_the_time_for_a_request(impatient):
    """Its time ends with its head: what is written and read after it is none of that."""
    post(impatient, "/engine/pause")
    caller = Caller(impatient, "/v1/completions", {"prompt": "x", "max_tokens": 3})
    assert Caller.open(impatient).read_all() == ""  # so much time has passed
    post(impatient, "/engine/resume")
    assert '"full_text":"abc"' in caller.read_all()


SHOWN = [path for path in PAGES.iterdir() if path.suffix in (".html", ".css")]
FILES = [f"/page/{path.name}" for path in SHOWN] + ["/board/live_page.js", "/board/gateway_page.js"]


@pytest.mark.parametrize("path", ["/", *FILES])
def test_a_browser_gets_the_page_without_a_key_and_what_it_draws_only_with_one(guarded, path):
    with http(guarded) as client:
        answer = client.get(path)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")
        assert client.get("/events").status_code == 401
    assert post(guarded, "/engine/pause").status_code == 401


def test_nothing_is_loaded_from_elsewhere(url):
    page, docs = (fetch(url, path).headers["content-security-policy"] for path in ("/", "/docs"))
    sources = {"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"}
    assert sources | {"script-src 'self'"} <= {part.strip() for part in page.split(";")}
    assert docs.startswith("default-src 'none'")
    for path in SHOWN:
        addresses = re.findall(
            r"""(?:src|href)="([^"]*)"|from "([^"]*)"|url\(([^)]*)\)""", path.read_text()
        )
        for address in filter(None, (one for found in addresses for one in found)):
            assert address.startswith(("/", "data:")) and not address.startswith("//"), address


def test_only_the_pages_own_files_are_served(url):
    (PAGES / "live.html").resolve(strict=True)
    with http(url) as client:
        above = "/page/../app.py", "/page/%2e%2e/app.py", "/board/..%2fhtml.py"
        for path in (*above, "/page/", "/page/x"):
            assert refusal(client.get(path)) == (404, "not_found")
        assert (
            client.get("/board/live_page.js").content == built("modules/live_page.js").read_bytes()
        )
