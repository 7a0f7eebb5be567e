"""From an engine to a running server, and its orderly end.

The first SIGTERM or Ctrl-C stops admission and lets running requests finish within the limit; `/ready`
says 503 meanwhile. The second one ends the process at once.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn

from engine.engine import Engine
from server.app import create_app
from server.core.bridge import Bridge
from server.core.event_log import Outbox, TraceFile
from server.core.garbage import freeze_heap
from server.core.models import ModelDirectory, Models
from server.core.settings import ServerSettings
from server.http.bodies import body_limits
from server.http.protocol import HttpProtocol
from server.http.request_log import LogWriter

# What the kernel buffers for one client. Left alone it grows to some 4 MB on loopback: that much
# would be on its way to a reader who has stopped reading before the server noticed.
SEND_BUFFER_BYTES = 128 << 10
# How long a connection stays open between two requests. A client that keeps it as long as the server
# does sends a request, now and then, into a connection that is just being closed. httpx and OpenAI's
# SDK keep it for 5 s, as uvicorn would; aiohttp for 15.
KEEP_ALIVE_SECONDS = 75


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Raises OSError if there is none to have."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listener


def url_of(listener: socket.socket) -> str:
    """Where to reach a listening socket from this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def trained_nanogpt(steps: int | None = None) -> Iterator[str]:
    """The directory of a model trained just now, which is there until it has been loaded."""
    from engine.training.nanogpt import STEPS, train_nanogpt

    # An exception, as for Ctrl-C: a training that is cut short leaves no directory behind, either.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with TemporaryDirectory(prefix="underglass-") as directory:
        yield str(train_nanogpt(Path(directory) / "nanogpt", steps=steps or STEPS))


def run_server(
    engine: Engine,
    outbox: Outbox,
    settings: ServerSettings,
    listener: socket.socket,
    *,
    directory: ModelDirectory | None = None,
    trace_file: TraceFile | None = None,
    request_log: LogWriter | None = None,
    ready: Callable[[], None] = lambda: None,
    until_stdin_closes: bool = False,
) -> None:
    """Serve until a signal says stop; returns after the drain.

    engine              made with `outbox` as its log
    directory           further models, loaded when a request names one
    ready               called once requests are answered
    until_stdin_closes  stop, too, when whoever started the server closes its stdin or dies
    """
    freeze_heap()
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    _forget_the_silent(listener, 2 * settings.stall_seconds)  # the server's own limit comes first
    first = Bridge(engine, outbox, settings, trace_file.write if trace_file else None)
    models = Models(first, directory)
    config = uvicorn.Config(
        create_app(models, request_log),
        log_level="warning",
        access_log=False,
        lifespan="off",
        http=HttpProtocol,
        ws="websockets-sansio",
        ws_max_size=body_limits(models).bytes,
        ws_per_message_deflate=False,  # on the same machine it only costs time
        # A notebook answers no ping while a cell computes.
        ws_ping_timeout=settings.stall_seconds,
        # A proxy on this machine says for whom it asks. Nobody else is believed, whatever
        # FORWARDED_ALLOW_IPS says: "I come from 127.0.0.1" would be leave to hold the engine.
        forwarded_allow_ips=["127.0.0.1", "::1"],
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=5,
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        ended = runner.run(_serve(models, _Server(config, ready), listener, until_stdin_closes))
    if request_log is not None:
        request_log.close()
    if not ended:  # a forward pass hangs: torn down around it, the interpreter could crash or wait
        sys.stdout.flush()
        os._exit(0)


class _Server(uvicorn.Server):
    """uvicorn, without its signal handlers, and saying when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


async def _serve(
    models: Models, server: _Server, listener: socket.socket, until_stdin_closes: bool
) -> bool:
    """Returns whether the engine thread has ended."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)  # asked twice: at once, whatever is still going on
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    if until_stdin_closes:
        threading.Thread(target=_await_eof, args=(loop, stop), daemon=True).start()
    models.start()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not serving.done():
        await models.drain()
    ended = await models.stop()
    server.should_exit = True
    await serving
    return ended


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn takes a WebSocket that was refused, with an answer, for a mistake of the app."""
    return "without completing handshake" not in record.getMessage()


def _forget_the_silent(listener: socket.socket, seconds: float) -> None:
    """Let the kernel end connections whose other side has acknowledged nothing for so long.

    A laptop that was closed says no good-bye. While something is being sent to it the server would
    notice by itself, but not once everything is in the kernel's buffer. Where the system has no
    such option (macOS), the kernel gives up after some minutes.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = max(1, int(seconds * 1000))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def _await_eof(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):  # not sys.stdin: its lock would outlive the loop
        pass
    loop.call_soon_threadsafe(stop.set)
