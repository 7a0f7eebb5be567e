"""The OpenAPI document tells of every route, every refusal and the key; /docs needs nothing else."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.server.harness import get, http, start

ROUTES = """
POST /v1/completions, POST /v1/chat/completions, GET /v1/models, GET /v1/models/{name},
POST /tokenize, POST /detokenize, GET /health, GET /ready, GET /metrics, GET /trace, GET /events,
POST /engine/pause, POST /engine/resume, POST /engine/step
"""


@pytest.fixture(scope="module")
def document(url: str) -> dict[str, Any]:
    return get(url, "/openapi.json")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_route_is_there(document: dict[str, Any]) -> None:
    told = {name for name, _ in operations(document)}
    assert told == {route.strip() for route in ROUTES.replace("\n", " ").split(",")}


def test_every_route_says_what_it_answers_and_how_it_refuses(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        answers = operation["responses"]
        assert set(answers) == {"200", "4XX", "5XX"}, name
        for status in ("4XX", "5XX"):
            told = answers[status]["content"]["application/json"]
            assert told["schema"] == {"$ref": "#/components/schemas/ErrorResponse"}
            assert set(told["example"]["error"]) == {"message", "type", "param", "code"}
        assert answers["200"]["content"], name
        for media in answers["200"]["content"].values():
            assert media.get("schema") or media.get("itemSchema"), name
        assert operation["tags"]
        assert operation["description"]
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_streams_are_told_of_with_examples(document: dict[str, Any]) -> None:
    streams = {
        name: operation["responses"]["200"]["content"]["text/event-stream"]
        for name, operation in operations(document)
        if "text/event-stream" in operation["responses"]["200"]["content"]
    }
    assert set(streams) == {"POST /v1/completions", "POST /v1/chat/completions", "GET /events"}
    assert all("data: " in str(stream) for stream in streams.values())


def test_the_key_is_told_of_where_the_server_has_one(document: dict[str, Any]) -> None:
    assert not any("security" in operation for _, operation in operations(document))
    with start(server={"api_key": "s3cret"}) as server:
        guarded = get(server.url, "/openapi.json")
    assert guarded["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    free = {name for name, operation in operations(guarded) if "security" not in operation}
    assert free == {"GET /health", "GET /ready"}


class _Nesting(HTMLParser):
    """Complains about what a browser would have to repair."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        if (link := given.get("href") or "").startswith("#"):
            self.links.add(link[1:])
        if tag in ("p", "pre", "table", "section"):
            assert "p" not in self.open, f"<{tag}> in a paragraph"
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_every_route_and_loads_nothing_from_elsewhere(
    url: str, document: dict[str, Any]
) -> None:
    with http(url) as client:
        page = client.get("/docs").text
    for name, operation in operations(document):
        assert f"<code>{name}</code>" in page
        assert operation["summary"] or name
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    parser = _Nesting()
    parser.feed(page)
    assert parser.open == []
    assert parser.links <= parser.ids
