"""The FastAPI app: all routes, the middleware around them, and their documentation.

FastAPI writes the OpenAPI document (`/openapi.json`) from the routes. This module adds what FastAPI
cannot see: the errors that any route can return, and the API key, which a middleware checks. `/docs`
shows the document. It is FastAPI's Swagger UI, but its files come from the package
`fastapi-swagger`, so that the page works without a network.
"""

import base64
import hashlib
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from server.api import adapters, compare, join, kv, live, metrics, operation, seat, status, tour
from server.api import models as models_api
from server.api.lmtp import session as lmtp
from server.api.openai import routes as openai
from server.core.models import Models
from server.core.settings import ServerSettings
from server.http import errors
from server.http.access import ApiKey, HostCheck, needs_no_key
from server.http.bodies import BodyLimit, BodyLimits, body_limits
from server.http.errors import ErrorObject, ErrorResponse
from server.http.request_log import LogWriter, RequestLog

# Response headers that pages from other sites may read.
_EXPOSED = (
    "retry-after",
    "www-authenticate",
    "x-request-id",
    "x-underglass-request",
    "x-underglass-replica",
)

_DESCRIPTION = """\
LLM inference, under glass: OpenAI's API, and everything the engine does.

Every error is an object with `message`, `type`, `param` and `code`; `param` names the field that \
is wrong. Every response has an `x-request-id`: the client's own, or a new one. A WebSocket at `/` and
`/lmtp` \
speaks LMTP."""
_REJECTED = """\
The request cannot be served as it is. 400: a field is wrong; `param` names it. 401: the key is \
missing. 403: the client or the `Host` is not allowed. 404: there is no such route or model. 405: \
the method is not allowed; `Allow` lists those that are. 408: the request did not arrive in time. \
409: the server's state does not allow it. 413: the body is too large. 415: the body is compressed. \
429: the queue is full; `Retry-After` says how long to wait."""
_FAILED = """\
The server cannot serve the request. 500: the forward pass failed, or the server has a bug. 503: the \
server is shutting down, or its engine is stuck, has failed or is being restarted; `Retry-After` says \
how long to wait."""

_ERRORS: dict[int | str, dict[str, Any]] = {
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


def create_app(models: Models, request_log: LogWriter | None = None) -> FastAPI:
    """Return the app that serves `models`. Call `models.start()` before serving requests."""
    app = app_without_routes(models.settings, body_limits(models), request_log)
    apis = openai, models_api, adapters, operation, status, metrics, live, tour, compare, seat, kv
    for api in apis:
        app.include_router(api.routes(models))
    app.include_router(join.routes(models.settings.host))
    lmtp.install(app, models)
    live.install_page(app)
    return app


def app_without_routes(
    settings: ServerSettings, limits: BodyLimits, request_log: LogWriter | None
) -> FastAPI:
    """Return an app with the middleware, the errors and the documentation that all servers have.

    The middleware that is added last is the first to see a request.
    """
    app = FastAPI(
        title="Underglass",
        docs_url=None,  # FastAPI's pages load their scripts from another server
        redoc_url=None,
        redirect_slashes=False,  # `TrailingSlash` needs no second request
        responses=_ERRORS,
    )
    errors.install(app)
    _add_documentation(app, with_key=settings.api_key is not None)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit, limits=limits, seconds=settings.stall_seconds)
    if settings.api_key is not None:
        app.add_middleware(ApiKey, key=settings.api_key)
    if (
        settings.cors_origin
    ):  # outside ApiKey, because preflights carry no key and pages must see a 401
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origin,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),  # SDKs add about a dozen headers
            allow_private_network=True,
            expose_headers=_EXPOSED,
        )
    app.add_middleware(
        HostCheck,
        bound=settings.host,
        allowed=settings.allowed_host,
        origins=settings.cors_origin,
    )
    app.add_middleware(RequestLog, writer=request_log, labels=settings.trace_text == "on")
    app.add_middleware(
        TrailingSlash
    )  # outermost, so that every other middleware sees the plain path
    return app


class TrailingSlash:
    """Removes slashes at the end of a path: /v1/models/ is /v1/models."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request or WebSocket on with the plain path."""
        if scope["type"] != "lifespan" and scope["path"].endswith("/"):
            scope["path"] = scope["path"].rstrip("/") or "/"
        await self._app(scope, receive, send)


class HeadAsGet:
    """Handles HEAD like GET; uvicorn drops the body (RFC 9110, section 9.3.2).

    /events is excluded, because its GET never ends.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; a HEAD request becomes a GET."""
        if scope["type"] == "http" and scope["method"] == "HEAD" and scope["path"] != "/events":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


def _add_documentation(app: FastAPI, *, with_key: bool) -> None:
    """Add the OpenAPI document and the page that shows it."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            written = get_openapi(
                title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes
            )
            for path, operations in written["paths"].items():
                for method in operations.values():
                    # The examples have all four keys; FastAPI itself would leave out keys that are
                    # null.
                    for status, error in _EXAMPLES.items():
                        media = method["responses"][status]["content"]["application/json"]
                        media["example"] = {"error": error.model_dump()}
                    if with_key and not needs_no_key(path):
                        method["security"] = [{"key": []}]
            if with_key:
                key = {"type": "http", "scheme": "bearer", "description": "The server's --api-key."}
                written.setdefault("components", {})["securitySchemes"] = {"key": key}
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
    """Return a policy that allows the page's one inline script and nothing from other servers."""
    script = page.partition(b"<script>")[2].partition(b"</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; connect-src 'self'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
