"""From the command's options to a running server, and its shutdown.

Cheap checks run before the model is loaded. They catch a wrong name, a port in use or a read-only file,
and report the mistake in one line.

After the first SIGTERM or Ctrl-C, the server rejects new requests, finishes running ones within the
drain limit, and answers /ready with 503. A second signal ends the process at once.
"""

import asyncio
import errno
import itertools
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import msgspec
import uvicorn
from fastapi import FastAPI

from engine.core.config import ConfigError, EngineConfig
from engine.core.extras import needs_extra
from engine.core.log.vocabulary import RunStarted
from server.app import create_app
from server.banner import banner
from server.core.adapters import lora_module
from server.core.addresses import network_addresses
from server.core.bridge import Bridge
from server.core.engine_client import EngineClient, EngineDiedError, StartError, freeze_heap
from server.core.engine_process import LaunchError, launch
from server.core.loading import load, tokenizer_of
from server.core.models import ModelDirectory, Models
from server.core.settings import ServerSettings, Start
from server.core.signals import on_signal
from server.http.access import is_loopback
from server.http.bodies import body_limits
from server.http.protocol import HttpProtocol
from server.http.request_log import LogWriter

# The kernel's send buffer for one client. By default it grows to about 4 MB on loopback, and the server
# would not notice that a client has stopped reading until it is full.
SEND_BUFFER_BYTES = 128 << 10
# How long an idle connection stays open. It must be longer than the client's own limit, or the client
# may send a request on a connection that the server is closing. httpx and OpenAI's SDK keep connections
# for 5 s, which is also uvicorn's default; aiohttp keeps them for 15 s.
KEEP_ALIVE_SECONDS = 75


def serve_until_stopped(start: Start, config: EngineConfig, settings: ServerSettings) -> None:
    """Load the model and serve it; return after the drain.

    Raises StartError, and ConfigError for a setting that the engine rejects.
    """
    _open_closed_streams()
    listeners = listen_for(settings, start.port)
    requests = open_request_log(start.request_log)
    _check_kv_events(start.kv_events)
    for text in start.lora_modules:
        lora_module(text, settings.served_model_name or (settings.model_name,))
    two_processes = not start.one_process and os.name == "posix"
    texts = settings.trace_text == "on"
    runs = itertools.count(1)

    def load_engine(one: Start, run: int = 1) -> EngineClient:
        if not two_processes:
            return load(one, config, texts=texts, run=run)
        structs = {"start": one, "config": config}
        arguments = msgspec.to_builtins(structs, enc_hook=str) | {"texts": texts, "run": run}
        return launch("server.core.loading:load_with", arguments, tokenizer_of)

    def load_first(paused: bool) -> EngineClient:
        one = msgspec.structs.replace(start, paused=paused)
        return _load_first(one, config, partial(load_engine, run=next(runs)))

    def load_another(path: Path) -> EngineClient:
        return load_engine(msgspec.structs.replace(start, model=str(path)))

    first = load_first(start.paused)
    directory = None
    if start.model_dir is not None:
        directory = ModelDirectory(start.model_dir, start.max_models, load_another)
    run_server(
        first,
        settings,
        listeners,
        directory=directory,
        launch=load_first if two_processes else None,
        request_log=requests,
        ready=lambda: print(
            banner(
                settings,
                url_of(listeners[0]),
                config,
                start,
                first.kv_source,
                model=_model_of(first),
            ),
            flush=True,
        ),
        until_stdin_closes=start.until_stdin_closes,
    )


def _model_of(client: EngineClient) -> dict[str, Any]:
    """Return the model's description in the first event of the run."""
    return next((event.model for event in client.started if isinstance(event, RunStarted)), {})


def _load_first(
    start: Start, config: EngineConfig, load_engine: Callable[[Start], EngineClient]
) -> EngineClient:
    """Load the model that `--model` names, or train one and load it. Raises StartError on failure."""
    try:
        if not start.train:
            return load_engine(start)
        with _directory_to_train_in() as model:
            return load_engine(msgspec.structs.replace(start, model=model))
    except Exception as error:
        kind = error.kind if isinstance(error, LaunchError) else type(error).__name__
        match kind:
            case "ConfigError":
                raise ConfigError(str(error)) from error
            case "StartError":
                raise StartError(str(error)) from error
            case "DraftModelError":
                raise StartError(f"--draft-model {start.draft_model}: {error}") from error
            case "CheckpointError" | "TokenizerError":
                raise StartError(f"--model {start.model}: {error}") from error
            case "MemoryError":
                raise StartError(
                    f"--max-kv-tokens {config.max_kv_tokens} does not fit into memory: choose a "
                    "smaller value"
                ) from error
        if isinstance(error, LaunchError):
            raise StartError(str(error)) from error
        raise


@contextmanager
def _directory_to_train_in() -> Iterator[str]:
    """Yield the directory for a NanoGPT; it is deleted after the block."""
    if threading.current_thread() is threading.main_thread():
        # Raise an exception, as Ctrl-C does, so that the directory is also deleted after a SIGTERM.
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with TemporaryDirectory(prefix="underglass-") as directory:
        yield str(Path(directory) / "nanogpt")


def _open_closed_streams() -> None:
    """Replace standard streams that the parent process has closed with /dev/null.

    Otherwise the next files and sockets would get their file descriptors, and terminal output would be
    written into them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 (stays open)


def open_request_log(destination: str) -> LogWriter | None:
    """Open the log that --request-log names, if any. Raises StartError."""
    if destination == "off":
        return None
    try:
        return LogWriter(None if destination == "stderr" else Path(destination))
    except OSError as error:
        raise StartError(
            f"--request-log {destination} cannot be written: {error.strerror}"
        ) from error


def _check_kv_events(address: str | None) -> None:
    """Raise StartError or ConfigError if KV events cannot be published, before a model is loaded."""
    if address is None:
        return
    with needs_extra("--kv-events"):
        from server.core.kv_publisher import endpoints
    endpoints(address)


def listen_for(settings: ServerSettings, port: int) -> list[socket.socket]:
    """Return the sockets of a server; raise StartError if it cannot listen.

    With one address of a network as `--host`, the first socket is on loopback, because without a key
    the engine can be paused only from there.
    """
    listener = listen(settings.host, port)
    address, port = listener.getsockname()[:2]
    has_key = settings.api_key is not None or settings.cluster_key is not None
    if has_key or is_loopback(address) or address in ("0.0.0.0", "::"):
        return [listener]
    return [listen("127.0.0.1", port), listener]


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 picks a free one. Raises StartError if it cannot listen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        number = error.errno or 0  # negative: the name could not be resolved
        text = os.strerror(number) if number > 0 else str(error.strerror)
        reason = text.partition(" (while ")[0]  # Python repeats the address after that
        others = ", ".join(one.address for one in network_addresses("::"))
        other = f" (this machine has {others})" if number == errno.EADDRNOTAVAIL and others else ""
        raise StartError(
            f"cannot listen on {host}:{port}: {reason}; choose another --host{other} or --port"
        ) from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket for clients on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_server(
    client: EngineClient,
    settings: ServerSettings,
    listeners: list[socket.socket],
    *,
    directory: ModelDirectory | None = None,
    launch: Callable[[bool], EngineClient] | None = None,
    request_log: LogWriter | None = None,
    ready: Callable[[], None] = lambda: None,
    until_stdin_closes: bool = False,
) -> None:
    """Serve until a signal stops the server; return after the drain.

    directory           further models, loaded when a request names one
    launch              see `Models`
    ready               called when the server accepts requests
    until_stdin_closes  also stop when the parent process closes stdin or dies

    Raises EngineDiedError if the engine's process is lost for good.
    """
    freeze_heap()
    models = Models(Bridge(client, settings), directory, launch)
    app = create_app(models, request_log)
    ended = run_app(
        app,
        models,
        settings,
        listeners,
        max_frame_bytes=body_limits(models).bytes,
        ready=ready,
        until_stdin_closes=until_stdin_closes,
    )
    if request_log is not None:
        request_log.close()
    if not ended:  # a forward pass is stuck: a normal exit could crash or hang
        sys.stdout.flush()
        os._exit(0)
    models.close()
    if models.lost:
        raise EngineDiedError(models.lost)


class Service(Protocol):
    """A service that a server process runs: its models, or a gateway. All calls come from the event
    loop.

    gave_up  set when it cannot recover by itself
    """

    gave_up: asyncio.Event

    def start(self) -> None:
        """Begin to work."""

    async def drain(self) -> None:
        """Accept no more requests; return when the running ones have ended or the time is up."""

    async def stop(self) -> bool:
        """End everything else; return False if a thread cannot be ended."""
        ...


def run_app(
    app: FastAPI,
    service: Service,
    settings: ServerSettings,
    listeners: list[socket.socket],
    *,
    max_frame_bytes: int,
    ready: Callable[[], None],
    until_stdin_closes: bool,
) -> bool:
    """Serve `app` until a signal stops it; return, after the drain, what `service.stop` returned.

    max_frame_bytes  the largest WebSocket frame that a client may send
    """
    logging.getLogger("uvicorn.error").addFilter(_is_relevant)
    for listener in listeners:
        _limit_silence(listener, 2 * settings.stall_seconds)  # the server's own limit comes first
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        http=HttpProtocol,
        ws="websockets-sansio",
        ws_max_size=max_frame_bytes,
        ws_per_message_deflate=False,  # compression would only cost time on a local network
        # A notebook cannot answer pings while a cell runs.
        ws_ping_timeout=settings.stall_seconds,
        # Trust the X-Forwarded-For of proxies on this machine only, whatever FORWARDED_ALLOW_IPS says:
        # a client that appears to be 127.0.0.1 may pause the engine.
        forwarded_allow_ips=["127.0.0.1", "::1"],
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=5,
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        server = _Server(config, ready)
        return runner.run(_serve(service, server, listeners, until_stdin_closes))


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
    service: Service, server: _Server, listeners: list[socket.socket], until_stdin_closes: bool
) -> bool:
    """Serve until stopped. Returns what `service.stop` returned."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def stop_on(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)  # the second signal: exit at once
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        on_signal(number, partial(stop_on, number))
    if until_stdin_closes:
        threading.Thread(target=_await_eof, args=(loop, stop), daemon=True).start()
    service.start()
    serving = asyncio.create_task(server.serve(sockets=listeners))
    waiting = [asyncio.create_task(one.wait()) for one in (stop, service.gave_up)]
    await asyncio.wait({serving, *waiting}, return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()
    if not serving.done():
        await service.drain()
    ended = await service.stop()
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
