"""The live page's files: open to a browser, complete without any other server."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from engine.extras import MissingExtraError
from server.api import live
from server.api.live import BOARD, PAGES
from tests.server.harness import http, post, start

FILES = [f"/page/{path.name}" for path in PAGES.iterdir()] + ["/board/live.js"]


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with start(server={"api_key": "secret"}) as server:
        yield server.url


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
    assert docs.headers["content-security-policy"].startswith("default-src 'none'")
    for path in PAGES.iterdir():
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
        assert client.get("/board/live.js").content == (BOARD / "live.js").read_bytes()


def test_a_missing_bundle_is_an_error_that_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "BOARD", tmp_path)
    with pytest.raises(MissingExtraError, match="`make setup`"):
        live.install_page(FastAPI())
