"""The FastAPI app: all routes, and the middleware around them."""

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from server.api import live, metrics, operation
from server.api import models as models_api
from server.api.lmtp import session as lmtp
from server.api.openai import chat, completions
from server.core.models import Models
from server.http import errors, openapi
from server.http.access import ApiKey, HostCheck, needs_no_key
from server.http.bodies import BodyLimit, body_limits
from server.http.request_log import LogWriter, RequestLog

# Response headers that pages from other sites may read.
_EXPOSED = ("retry-after", "www-authenticate", "x-request-id", "x-underglass-request")


def create_app(models: Models, request_log: LogWriter | None = None) -> FastAPI:
    """Return the app that serves `models`. Call `models.start()` before serving requests.

    The middleware that is added last sees each request first.
    """
    settings = models.settings
    app = FastAPI(
        title="Underglass",
        docs_url=None,  # FastAPI's pages load their scripts from another server
        redoc_url=None,
        responses=openapi.ERRORS,
    )
    errors.install(app)
    openapi.install(app, needs_no_key, with_key=settings.api_key is not None)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit, limits=body_limits(models), seconds=settings.stall_seconds)
    if settings.api_key is not None:
        app.add_middleware(ApiKey, key=settings.api_key)
    if settings.cors_origins:  # outside ApiKey: preflights carry no key, and pages must see a 401
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),  # SDKs add about a dozen headers
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
    for api in (completions, chat, models_api, operation, metrics, live):
        app.include_router(api.routes(models))
    lmtp.install(app, models)
    live.install_page(app)
    return app


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
