"""The app: every room's routes, and what surrounds each request."""

from fastapi import FastAPI

from server.api import feed, live_page, metrics, operation, tokens
from server.api.lmtp import routes as lmtp_routes
from server.api.openai import routes as openai_routes
from server.core.models import Models
from server.http import docs_page, errors, openapi
from server.http.bodies import body_limits
from server.http.cors import Cors
from server.http.hosts import HostCheck
from server.http.middleware import ApiKey, BodyLimit, Head, needs_no_key
from server.http.request_log import LogWriter, RequestLog


def create_app(models: Models, request_log: LogWriter | None = None) -> FastAPI:
    """The app over its models; `models.start()` must have been called before it serves."""
    settings = models.settings
    app = FastAPI(
        title="Underglass",
        docs_url=None,  # both load their program from another server: see docs_page
        redoc_url=None,
        responses=openapi.ERRORS,
    )
    errors.install(app)
    openapi.install(app, needs_no_key, with_key=settings.api_key is not None)
    app.add_middleware(Head)
    app.add_middleware(BodyLimit, limits=body_limits(models), seconds=settings.stall_seconds)
    if settings.api_key is not None:
        app.add_middleware(ApiKey, key=settings.api_key)
    if settings.cors_origins:  # around the key: a preflight has none, and a 401 is to be read
        app.add_middleware(Cors, origins=settings.cors_origins)
    app.add_middleware(
        HostCheck,
        bound=settings.host,
        allowed=settings.allowed_hosts,
        origins=settings.cors_origins,
    )
    app.add_middleware(RequestLog, writer=request_log)
    for room in (openai_routes, tokens, operation, metrics, feed):
        app.include_router(room.routes(models))
    lmtp_routes.install(app, models)
    live_page.install(app)
    docs_page.install(app)
    return app
