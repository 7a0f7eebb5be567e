"""The gateway's OpenAPI document has every route of one server that works on a gateway."""

from typing import Any

from tests.server.harness import get
from tests.server.test_openapi import HEALTH, RESPONSES, ROUTES, operations

ONE_ENGINE = {
    "POST /engine/restart",
    "POST /engine/screen",
    "GET /compare",
    "GET /kv_event_sources",
    "POST /kv/export",  # between replicas
    "POST /kv/adopt",
}


def test_gateway_has_the_routes_of_one_server(url: str) -> None:
    document: dict[str, Any] = get(url, "/openapi.json")
    one_server = {route.strip() for route in ROUTES.replace("\n", " ").split(",")}
    assert {name for name, _ in operations(document)} == one_server - ONE_ENGINE


def test_every_route_is_described(url: str) -> None:
    for name, operation in operations(get(url, "/openapi.json")):
        assert operation["description"], name
        assert operation["tags"], name
        assert set(operation["responses"]) == RESPONSES | HEALTH.get(name, set()), name
