"""The OpenAPI document tells of every route, every refusal and the key; /docs shows it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.harness import get, start

ROUTES = """
POST /v1/completions, POST /v1/completions/render, POST /v1/chat/completions,
POST /v1/chat/completions/render, POST /v1/responses/render, POST /v1/responses, GET /clock,
GET /ping, POST /ping, GET /version, GET /load,
GET /v1/models, GET /v1/models/{name}, POST /v1/load_lora_adapter, POST /v1/unload_lora_adapter,
POST /tokenize, POST /detokenize, GET /health, GET /ready, GET /join, GET /metrics, GET /trace,
GET /events, GET /regimes, GET /tour,
POST /engine/pause, POST /engine/resume, POST /engine/step, POST /engine/run_until,
POST /engine/hold_submissions, POST /engine/release_submissions, POST /engine/restart,
POST /engine/screen, GET /compare, POST /seat, GET /kv_event_sources, POST /kv/adopt, POST /kv/export
"""


@pytest.fixture(scope="module")
def document(url: str) -> dict[str, Any]:
    return get(url, "/openapi.json")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_route_is_there(document):
    told = {name for name, _ in operations(document)}
    assert told == {route.strip() for route in ROUTES.replace("\n", " ").split(",")}


RESPONSES = {"200", "4XX", "5XX"}
HEALTH = {"GET /health": {"503"}}  # with the same body as 200


def test_every_route_says_what_it_answers_and_how_it_refuses(document):
    for name, operation in operations(document):
        answers = operation["responses"]
        assert set(answers) == RESPONSES | HEALTH.get(name, set()), name
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


def test_streams_are_documented_with_examples(document):
    streams = {
        name: operation["responses"]["200"]["content"]["text/event-stream"]
        for name, operation in operations(document)
        if "text/event-stream" in operation["responses"]["200"]["content"]
    }
    generating = {f"POST /v1/{name}" for name in ("completions", "chat/completions", "responses")}
    assert set(streams) == generating | {"GET /events"}
    assert all("data: " in str(stream) for stream in streams.values())


def test_the_key_is_documented_if_the_server_has_one(document):
    assert not any("security" in operation for _, operation in operations(document))
    with start(server={"api_key": "s3cret"}) as server:
        guarded = get(server.url, "/openapi.json")
    assert guarded["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    free = {name for name, operation in operations(guarded) if "security" not in operation}
    assert free == {"GET /health", "GET /ready", "GET /ping", "POST /ping"}
