"""Turn the command's options into a running server. A failure is reported in one line.

Cheap checks run before the model is loaded. They catch a wrong name, a port in use or a read-only file.
"""

import os
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import msgspec

from engine.cache.eviction import eviction_named
from engine.config import EngineConfig
from engine.engine import Engine
from engine.scheduling.policies import policy_named
from engine.text.tokenizer import TokenizerError
from server.cli.serving import listen, run_server, url_of
from server.core.event_log import Outbox, TraceFile
from server.core.models import ModelDirectory
from server.core.settings import ServerSettings
from server.http.access import is_loopback
from server.http.request_log import LogWriter

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
    listener = _listen(settings.host, start.port)
    trace, requests = _trace_file(start.trace_file), _request_log(start.request_log)

    def load(source: str | Path) -> tuple[Engine, Outbox]:
        outbox = Outbox()
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
    address = _network_address() if settings.host == "0.0.0.0" else None
    if address is not None:
        text += f"  other machines     http://{address}:{port}/\n"
    if settings.api_key is None:
        text += (
            "\nAny machine that can reach this one can use the model; --api-key requires a key.\n"
        )
    return text


def _network_address() -> str | None:
    """Return this machine's network address. UDP only looks up the route, so nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))  # an address that is never assigned (RFC 5737)
        except OSError:
            return None
        return str(route.getsockname()[0])


def _load_first(
    start: Start,
    config: EngineConfig,
    load: Callable[[str | Path], tuple[Engine, Outbox]],
) -> tuple[Engine, Outbox]:
    """Load the model that `--model` names, or train one and load it. Raises StartError on failure."""
    from engine.compute.weights.checkpoint import (
        CheckpointError,
    )  # imports torch, which takes seconds

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


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        number = error.errno or 0  # negative: the name could not be resolved
        text = os.strerror(number) if number > 0 else str(error.strerror)
        reason = text.partition(" (while ")[0]  # Python repeats the address after that
        raise StartError(
            f"cannot listen on {host}:{port}: {reason}; choose another --host or --port"
        ) from error


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
