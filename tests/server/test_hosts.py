"""Clients that the server accepts: names against DNS rebinding, and other sites' WebSockets."""

import asyncio
from typing import Any

import pytest

from server.http.access import HostCheck
from tests.facts import assert_names
from tests.server.harness import Caller, Serve, http

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


@pytest.mark.parametrize("host", OURS)
def test_loopback_names_and_addresses_in_digits_pass(url: str, host: str) -> None:
    with http(url) as client:
        assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("path", ["/health", "/", "/v1/models", "/nowhere"])
def test_a_name_that_is_not_ours_is_refused_on_every_route(url: str, host: str, path: str) -> None:
    with http(url) as client:
        refused = client.get(path, headers={"Host": host})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "host_not_allowed")
    assert_names(refused.json()["error"]["message"], "--allowed-host")


def test_names_given_at_the_start_pass_too(serve: Serve) -> None:
    url = serve(server={"allowed_hosts": ["Lab.example.org"], "host": "teacher"}).url
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
