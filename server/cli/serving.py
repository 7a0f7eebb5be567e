"""From an engine to a running server, and its shutdown.

After the first SIGTERM or Ctrl-C, the server rejects new requests, finishes running ones within the
drain limit, and answers /ready with 503. A second signal ends the process at once.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext

import uvicorn

from engine.engine import Engine
from server.app import create_app
from server.core.bridge import Bridge
from server.core.event_log import Outbox, TraceFile
from server.core.models import ModelDirectory, Models
from server.core.settings import ServerSettings
from server.http.bodies import body_limits
from server.http.protocol import HttpProtocol
from server.http.request_log import LogWriter

# The kernel's send buffer for one client. By default it grows to about 4 MB on loopback, and the server
# would not notice that a client has stopped reading until it is full.
SEND_BUFFER_BYTES = 128 << 10
# How long an idle connection stays open. It must be longer than the client's own limit; otherwise the
# client may send a request on a connection that the server is closing. httpx and OpenAI's SDK keep
# connections for 5 s, which is also uvicorn's default; aiohttp keeps them for 15 s.
KEEP_ALIVE_SECONDS = 75
# Number of new objects after which the garbage collector runs even under load. A busy server reaches it
# once, while its log window fills; after that, only cycles can reach it.
MAX_NEW_OBJECTS = 500_000


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 picks a free one. Raises OSError if it cannot listen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket for clients on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def freeze_heap() -> None:
    """Exempt all existing objects from garbage collection, and make collections rare.

    Reference counting frees nearly everything immediately; the collector only looks for cycles. It
    scans every young object, including those of the event log, and all streams stop meanwhile: 8 ms per
    20,000 objects and about 75 ms for the older ones, which is 3 to 6 % of the time with 64 streams
    (measured with the bundled model). So `Bridge` collects when its last request has ended.

    Source: vLLM also freezes its heap (`vllm/utils/gc_utils.py`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(MAX_NEW_OBJECTS)


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
    """Serve until a signal stops the server; return after the drain.

    engine              created with `outbox` as its log
    directory           further models, loaded when a request names one
    ready               called when the server accepts requests
    until_stdin_closes  also stop when the parent process closes stdin or dies
    """
    freeze_heap()
    logging.getLogger("uvicorn.error").addFilter(_is_relevant)
    _limit_silence(listener, 2 * settings.stall_seconds)  # the server's own limit comes first
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
        ws_per_message_deflate=False,  # would only cost time on a local network
        # A notebook cannot answer pings while a cell runs.
        ws_ping_timeout=settings.stall_seconds,
        # Trust the X-Forwarded-For of proxies on this machine only, whatever FORWARDED_ALLOW_IPS says:
        # a client that appears to be 127.0.0.1 may pause the engine.
        forwarded_allow_ips=["127.0.0.1", "::1"],
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=5,
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        ended = runner.run(_serve(models, _Server(config, ready), listener, until_stdin_closes))
    if request_log is not None:
        request_log.close()
    if not ended:  # a forward pass is stuck: a normal exit could crash or hang
        sys.stdout.flush()
        os._exit(0)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, and with a callback when it is ready."""

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
    """Serve until stopped. Returns whether the engine thread has ended."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)  # the second signal: exit at once
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


def _is_relevant(record: logging.LogRecord) -> bool:
    """Drop uvicorn's message that reports a rejected WebSocket as an error in the app."""
    return "without completing handshake" not in record.getMessage()


def _limit_silence(listener: socket.socket, seconds: float) -> None:
    """Let the kernel close connections whose client has acknowledged nothing for this long.

    A laptop whose lid is closed does not close its connections. The server notices this while it still
    has data to send, but not once all of it is in the kernel's buffer. On systems without this option
    (macOS), the kernel gives up after a few minutes.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = max(1, int(seconds * 1000))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def _await_eof(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):  # not sys.stdin: its lock would outlive the loop
        pass
    loop.call_soon_threadsafe(stop.set)
