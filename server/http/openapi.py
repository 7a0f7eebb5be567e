"""The OpenAPI document (`/openapi.json`) and the page that shows it (`/docs`).

FastAPI writes the document from the routes. This module adds what FastAPI cannot see: the errors that
any route can return, and the API key, which a middleware checks. The page is FastAPI's Swagger UI, with
its files served from the package `fastapi-swagger`, so that it works without a network.
"""

import base64
import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles

from server.http.errors import ErrorObject, ErrorResponse

DESCRIPTION = """\
LLM inference, under glass: OpenAI's API, and everything the engine does.

Every error is an object with `message`, `type`, `param` and `code`; `param` names the wrong field. \
Every response has an `x-request-id`: the client's own, or a new one. A WebSocket at `/` and `/lmtp` \
speaks LMTP."""

_REJECTED = """\
The request cannot be served as it is. 400: a field is wrong; `param` names it. 401: the key is \
missing. 403: the client or the `Host` is not allowed. 404: there is no such route or model. 405: \
the method is not allowed; `Allow` lists those that are. 408: the request did not arrive in time. \
409: the server's state does not allow it. 413: the body is too large. 415: the body is compressed. \
429: the queue is full; `Retry-After` says how long to wait."""
_FAILED = """\
The server cannot serve the request. 500: the forward pass failed, or the server has a bug. 503: the \
server is starting, stopping or stuck; `Retry-After` says how long to wait."""


# An event of a stream. OpenAPI describes one event; the stream has any number of them.
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
    "4XX": {"model": ErrorResponse, "description": _REJECTED},
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
    """Add the document and the page. The app must have been created with `docs_url=None`.

    is_open    whether a path needs no key
    with_key   whether the server has a key
    """

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            written = get_openapi(
                title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes
            )
            _add_error_examples(written)
            if with_key:
                _require_key(written, is_open)
            app.openapi_schema = written
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign] # FastAPI's own way to extend it
    page = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="Underglass: every route",
        swagger_js_url="/docs/swagger-ui-bundle.js",
        swagger_css_url="/docs/swagger-ui.css",
        swagger_favicon_url="data:,",
    )
    page.headers["Content-Security-Policy"] = _policy(bytes(page.body))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page

    app.mount("/docs", StaticFiles(directory=str(files("fastapi_swagger") / "resources")))


def _policy(page: bytes) -> str:
    """Allow the page's one inline script, and nothing from other servers."""
    script = page.partition(b"<script>")[2].partition(b"</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; connect-src 'self'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


def _add_error_examples(document: dict[str, Any]) -> None:
    """Add examples with all four keys: FastAPI would leave out those that are null."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, error in _EXAMPLES.items():
                media = operation["responses"][status]["content"]["application/json"]
                media["example"] = {"error": error.model_dump()}


def _require_key(document: dict[str, Any], is_open: Callable[[str], bool]) -> None:
    scheme = {"type": "http", "scheme": "bearer", "description": "The server's --api-key."}
    document.setdefault("components", {})["securitySchemes"] = {"key": scheme}
    for path, operations in document["paths"].items():
        if not is_open(path):
            for operation in operations.values():
                operation["security"] = [{"key": []}]
