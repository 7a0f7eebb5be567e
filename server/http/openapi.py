"""The OpenAPI document, `/openapi.json`: what every route takes, what it answers, and how it refuses.

FastAPI writes it from the routes; here is what it cannot see: the errors that can come from anywhere,
and the key, which is asked for before any route is reached.
"""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from server.http.errors import ErrorObject, ErrorResponse

DESCRIPTION = """\
LLM inference, under glass: OpenAI's API, and everything the engine does.

Every error is an object with `message`, `type`, `param` and `code`; `param` names the field that is \
wrong. Every answer has an `x-request-id`: the one that was sent, or a new one. A WebSocket at `/` and \
`/lmtp` speaks LMTP."""

_REFUSED = """\
The request cannot be served as it is. 400: a field is wrong, `param` names it. 401: the key is \
missing. 403: this is for others to do, or under another name. 404: there is no such route or model. \
405: not with this method, `Allow` has those. 408: it did not arrive in time. 409: not in this state. \
413: the body is too large. 415: it is compressed. 429: too many wait, `Retry-After` says how long."""
_FAILED = """\
The server cannot serve it. 500: the forward pass failed, or the server has a bug. 503: it is \
starting, stopping or stuck; `Retry-After` says how long to wait."""


# An event of a stream; OpenAPI describes one of them, the stream has any number.
EVENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "data": {"type": "string"},
        "event": {"type": "string"},
        "id": {"type": "string"},
    },
    "required": ["data"],
}

ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorResponse, "description": _REFUSED},
    "5XX": {"model": ErrorResponse, "description": _FAILED},
}
_EXAMPLES = {
    "4XX": ErrorObject(
        message="max_tokens must be at least 1, got 0",
        type="invalid_request_error",
        param="max_tokens",
        code=None,
    ),
    "5XX": ErrorObject(
        message="the server is shutting down", type="server_error", param=None, code="shutdown"
    ),
}


def install(app: FastAPI, is_open: Callable[[str], bool], *, with_key: bool) -> None:
    """Let the app write its document like this.

    is_open    whether a path needs no key
    with_key   whether the server asks for one at all
    """

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            written = get_openapi(
                title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes
            )
            _show_errors(written)
            if with_key:
                _ask_for_key(written, is_open)
            app.openapi_schema = written
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign] # FastAPI's own way to extend it


def _show_errors(document: dict[str, Any]) -> None:
    """Examples with all four keys: FastAPI would leave out those that are null."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, error in _EXAMPLES.items():
                media = operation["responses"][status]["content"]["application/json"]
                media["example"] = {"error": error.model_dump()}


def _ask_for_key(document: dict[str, Any], is_open: Callable[[str], bool]) -> None:
    scheme = {"type": "http", "scheme": "bearer", "description": "The server's --api-key."}
    document.setdefault("components", {})["securitySchemes"] = {"key": scheme}
    for path, operations in document["paths"].items():
        if not is_open(path):
            for operation in operations.values():
                operation["security"] = [{"key": []}]
