"""The app: all routes, and the middleware around each request."""

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from server.api import feed, live_page, metrics, operation, tokens
from server.api.lmtp import routes as lmtp_routes
from server.api.openai import routes as openai_routes
from server.core.models import Models
from server.http import errors, openapi
from server.http.access import ApiKey, HostCheck, needs_no_key
from server.http.bodies import BodyLimit, body_limits
from server.http.request_log import LogWriter, RequestLog

# Response headers that pages of other sites can read.
_EXPOSED = ("retry-after", "www-authenticate", "x-request-id", "x-underglass-request")


def create_app(models: Models, request_log: LogWriter | None = None) -> FastAPI:
    """Return the app over its models; call `models.start()` before it serves.

    The middleware added last sees a request first.
    """
    settings = models.settings
    app = FastAPI(
        title="Underglass",
        docs_url=None,  # FastAPI's pages load their program from another server
        redoc_url=None,
        responses=openapi.ERRORS,
    )
    errors.install(app)
    openapi.install(app, needs_no_key, with_key=settings.api_key is not None)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit, limits=body_limits(models), seconds=settings.stall_seconds)
    if settings.api_key is not None:
        app.add_middleware(ApiKey, key=settings.api_key)
    if settings.cors_origins:  # around the key: preflights have none, and pages must see a 401
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),  # SDKs send a dozen headers of their own
            allow_private_network=True,
            expose_headers=_EXPOSED,
        )
    app.add_middleware(
        HostCheck,
        bound=settings.host,
        allowed=settings.allowed_hosts,
        origins=settings.cors_origins,
    )
    app.add_middleware(RequestLog, writer=request_log)
    for api in (openai_routes, tokens, operation, metrics, feed):
        app.include_router(api.routes(models))
    lmtp_routes.install(app, models)
    live_page.install(app)
    return app


class HeadAsGet:
    """Answers HEAD as GET would; uvicorn drops the body (RFC 9110, section 9.3.2).

    Not on /events, whose GET never ends.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, as a GET if it is a HEAD."""
        if scope["type"] == "http" and scope["method"] == "HEAD" and scope["path"] != "/events":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
