"""`underglass serve --replica URL` and `--replicas N`: a running gateway, and its app.

The app has the routes of one server, inside the same middleware.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from engine.cluster.router import Router
from engine.core.config import ConfigError
from server.api import join, live
from server.app import app_without_routes
from server.core.settings import ServerSettings
from server.gateway import events, lmtp, metrics, operation
from server.gateway.failures import Deadlines
from server.gateway.gateway import Gateway
from server.gateway.proxy import RoutedAnswer
from server.gateway.replica_set import ReplicaSet
from server.gateway.trace import open_trace
from server.http.bodies import LARGEST_BODY
from server.http.request_log import LogWriter
from server.serving import listen_for, open_request_log, run_app, url_of

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
    live.install_page(app, of_gateway=True)
    return app


def _generation(gateway: Gateway) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    async def generate(request: Request) -> Response:
        """Answered by the replica that the router chooses; see the same route of one server."""
        return RoutedAnswer(gateway, request, await request.body())

    for path in _GENERATION:
        router.add_api_route(path, generate, methods=["POST"], response_class=Response, name=path)
    return router


def serve_gateway(
    replicas: ReplicaSet,
    router: Router | str,
    settings: ServerSettings,
    *,
    port: int,
    roles: Sequence[str] = (),
    deadlines: Deadlines | None = None,
    trace_file: Path | None = None,
    request_log: str = "stderr",
    announce: Callable[[str], None] = lambda _url: None,
    until_stdin_closes: bool = False,
    running: AbstractContextManager[object] = nullcontext(),  # noqa: B008 (it has no state)
) -> None:
    """Serve until a signal stops the gateway; return after the drain.

    trace_file   the file that gets the whole cluster log; see `trace.py`
    request_log  "stderr", "off", or a file to append to
    announce     called with the gateway's URL when it accepts requests
    running      runs the replicas: entered before the gateway accepts requests, left after the drain

    Raises StartError if it cannot listen or write a file, and ConfigError for an unknown router.
    """
    listeners, log = listen_for(settings, port), open_request_log(request_log)
    trace = open_trace(trace_file, texts=settings.trace_text == "on")
    try:
        gateway = Gateway(replicas, router, settings, roles=roles, trace=trace, deadlines=deadlines)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    with running:
        run_app(
            create_gateway_app(gateway, log),
            gateway,
            gateway.settings,
            listeners,
            max_frame_bytes=LARGEST_BODY.bytes,
            ready=lambda: announce(url_of(listeners[0])),
            until_stdin_closes=until_stdin_closes,
        )
    if log is not None:
        log.close()


def checked_url(text: str) -> str:
    """Return a replica's URL without a slash at the end. Raises ConfigError if it is not one."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.netloc or url.query or url.fragment:
        raise ConfigError(f"replica must look like http://127.0.0.1:8001, got {text!r}")
    return text.rstrip("/")
