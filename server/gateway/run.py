"""`underglass serve --replica URL` and `--replicas N`: from the options to a running gateway."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from urllib.parse import urlsplit

from engine.cluster.router import Router
from engine.core.config import ConfigError
from server.core.settings import ServerSettings
from server.gateway.app import create_gateway_app
from server.gateway.gateway import Gateway
from server.gateway.replica_set import ReplicaSet
from server.http.bodies import LARGEST_BODY
from server.serving import listen_for, open_request_log, run_app, url_of


def serve_gateway(
    replicas: ReplicaSet,
    router: Router | str,
    settings: ServerSettings,
    *,
    port: int,
    request_log: str = "stderr",
    announce: Callable[[str], None] = lambda _url: None,
    until_stdin_closes: bool = False,
    running: AbstractContextManager[object] = nullcontext(),  # noqa: B008 (it has no state)
) -> None:
    """Serve until a signal stops the gateway; return after the drain.

    request_log  "stderr", "off", or a file to append to
    announce     called with the gateway's URL when it accepts requests
    running      runs the replicas: entered before the gateway accepts requests, left after the drain

    Raises StartError if it cannot listen, and ValueError for an unknown router.
    """
    gateway = Gateway(replicas, router, settings)
    listeners, log = listen_for(settings, port), open_request_log(request_log)
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
