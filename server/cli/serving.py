"""From the command's options to a running server, and its shutdown.

Cheap checks run before the model is loaded. They catch a wrong name, a port in use or a read-only file,
and report it in one line.

After the first SIGTERM or Ctrl-C, the server rejects new requests, finishes running ones within the
drain limit, and answers /ready with 503. A second signal ends the process at once.
"""

import asyncio
import logging
import os
import shlex
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import msgspec
import uvicorn

from engine.cache.eviction import eviction_named
from engine.config import EngineConfig
from engine.engine import Engine
from engine.scheduling.policies import policy_named
from engine.text.tokenizer import TokenizerError
from server.app import create_app
from server.core.addresses import routed_address
from server.core.bridge import Bridge, freeze_heap
from server.core.event_log import Outbox, TraceFile
from server.core.models import ModelDirectory, Models
from server.core.settings import ServerSettings
from server.http.access import is_loopback
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

_BANNER = """\
Underglass serves {model} at {url}

  curl -N {url}/v1/completions -H 'Content-Type: application/json'{key} \\
       -d '{{"prompt": "Once upon a time", "max_tokens": 50}}'

  live page          {url}/
  OpenAI clients     base_url is {url}/v1
  LMQL clients       {socket}/ (LMTP)
  status             {url}/health and {url}/metrics
  event log          {url}/trace
  all routes         {url}/docs
"""


class StartError(Exception):
    """The server cannot start. The message gives the reason and names the option."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The model to serve, the port, and the files to write.

    model               directory, hub name or "bundled"
    model_dir           directory of additional models, with `--model auto`
    max_models          how many of those models can be loaded at once
    train, train_steps  whether to train a model first and serve it, and for how many steps
    port                port to listen on; 0 picks a free one
    paused              whether to start with the engine paused
    trace_file          file for the whole event log
    request_log         "stderr", "off", or a file to append to
    until_stdin_closes  whether to stop when the parent process closes stdin or dies
    """

    model: str
    model_dir: Path | None
    max_models: int
    train: bool
    train_steps: int | None
    port: int
    paused: bool
    trace_file: Path | None
    request_log: str
    until_stdin_closes: bool


def serve_until_stopped(start: Start, config: EngineConfig, settings: ServerSettings) -> None:
    """Load the model and serve it; return after the drain.

    Raises StartError, and ConfigError for a setting that the engine rejects.
    """
    _open_closed_streams()
    policy_named(config.policy)
    eviction_named(config.eviction)
    listener = listen(settings.host, start.port)
    trace, requests = _trace_file(start.trace_file), _request_log(start.request_log)

    def load(source: str | Path) -> tuple[Engine, Outbox]:
        outbox = Outbox(texts=settings.trace_text == "on")
        engine = Engine.load(
            source,
            config,
            policy=policy_named(config.policy),  # each engine needs its own policy
            eviction=eviction_named(config.eviction),
            log=outbox,
        )
        if start.paused:
            engine.pause()
        return engine, outbox

    engine, outbox = _load_first(start, config, load)
    directory = ModelDirectory(start.model_dir, start.max_models, load) if start.model_dir else None
    run_server(
        engine,
        outbox,
        settings,
        listener,
        directory=directory,
        trace_file=trace,
        request_log=requests,
        ready=lambda: print(banner(settings, url_of(listener), start.model_dir), flush=True),
        until_stdin_closes=start.until_stdin_closes,
    )


def banner(settings: ServerSettings, url: str, model_dir: Path | None = None) -> str:
    """Return the text that a server prints when it is ready, including a command to paste.

    url         the server's address on this machine
    model_dir   directory of additional models
    """
    header = f"Authorization: Bearer {settings.api_key}"
    text = _BANNER.format(
        model=settings.model_name,
        url=url,
        socket=url.replace("http://", "ws://", 1),
        key=f" -H {shlex.quote(header)}" if settings.api_key else "",
    )
    if model_dir is not None:
        text += f"  more models        {url}/v1/models lists those in {model_dir}\n"
    if is_loopback(settings.host):
        return text
    port = url.rpartition(":")[2]
    address = routed_address() if settings.host == "0.0.0.0" else None
    if address is not None:
        text += f"  other machines     http://{address}:{port}/\n"
    if settings.api_key is None:
        text += (
            "\nAny machine that can reach this one can use the model; --api-key requires a key.\n"
        )
    return text


def _load_first(
    start: Start,
    config: EngineConfig,
    load: Callable[[str | Path], tuple[Engine, Outbox]],
) -> tuple[Engine, Outbox]:
    """Load the model that `--model` names, or train one and load it. Raises StartError on failure."""
    from engine.compute.weights.checkpoint import CheckpointError  # imports torch: takes seconds

    trained = _trained_nanogpt(start.train_steps) if start.train else nullcontext(start.model)
    try:
        with trained as source:
            return load(source)
    except (CheckpointError, TokenizerError) as error:
        raise StartError(f"--model {start.model}: {error}") from error
    except MemoryError as error:
        raise StartError(
            f"--max-kv-tokens {config.max_kv_tokens} does not fit into memory: choose a smaller value"
        ) from error


@contextmanager
def _trained_nanogpt(steps: int | None = None) -> Iterator[str]:
    """Train a NanoGPT and yield its directory, which is deleted after the block."""
    from engine.training.nanogpt import STEPS, train_nanogpt

    # Raise an exception, as Ctrl-C does, so that the directory is also deleted after a SIGTERM.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with TemporaryDirectory(prefix="underglass-") as directory:
        yield str(train_nanogpt(Path(directory) / "nanogpt", steps=steps or STEPS))


def _open_closed_streams() -> None:
    """Replace standard streams that the parent process has closed with /dev/null.

    Otherwise the next files and sockets would get their file descriptors, and terminal output would be
    written into them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 (stays open)


def _trace_file(path: Path | None) -> TraceFile | None:
    try:
        return TraceFile(path) if path else None
    except OSError as error:
        _cannot_write("--trace-file", path, error)


def _request_log(destination: str) -> LogWriter | None:
    if destination == "off":
        return None
    try:
        return LogWriter(None if destination == "stderr" else Path(destination))
    except OSError as error:
        _cannot_write("--request-log", destination, error)


def _cannot_write(option: str, path: object, error: OSError) -> NoReturn:
    raise StartError(f"{option} {path} cannot be written: {error.strerror}") from error


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 picks a free one. Raises StartError if it cannot listen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        number = error.errno or 0  # negative: the name could not be resolved
        text = os.strerror(number) if number > 0 else str(error.strerror)
        reason = text.partition(" (while ")[0]  # Python repeats the address after that
        raise StartError(
            f"cannot listen on {host}:{port}: {reason}; choose another --host or --port"
        ) from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket for clients on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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
    models = Models(first, directory, trace_file)
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
