"""The gateway's app: the routes of one server, inside the same middleware."""

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from server.api import join, live
from server.app import app_without_routes
from server.gateway import events, lmtp, metrics, operation
from server.gateway.gateway import Gateway
from server.gateway.proxy import RoutedAnswer
from server.http.bodies import LARGEST_BODY
from server.http.request_log import LogWriter

_GENERATION = ("/v1/completions", "/v1/chat/completions", "/v1/responses")


def create_gateway_app(gateway: Gateway, request_log: LogWriter | None = None) -> FastAPI:
    """Return the app. Call `gateway.start()` before serving requests.

    A body may be as large as any server accepts; its replica knows its own limit.
    """
    app = app_without_routes(gateway.settings, LARGEST_BODY, request_log)
    for routes in (_generation, operation.routes, metrics.routes, events.routes):
        app.include_router(routes(gateway))
    app.include_router(join.routes(gateway.settings.host))
    lmtp.install(app, gateway)
    live.install_page(app, "gateway.html")
    return app


def _generation(gateway: Gateway) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    async def generate(request: Request) -> Response:
        """Answered by the replica that the router chooses; see the same route of one server."""
        return RoutedAnswer(gateway, request, await request.body())

    for path in _GENERATION:
        router.add_api_route(path, generate, methods=["POST"], response_class=Response, name=path)
    return router
