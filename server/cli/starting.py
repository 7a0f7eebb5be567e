"""From the command's options to a running server. What stands in the way is said in one line.

Whatever is cheap to find out comes before the model is loaded: a wrong name, a port that is taken, a
file that cannot be written.
"""

import os
import socket
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

import msgspec

from engine.cache.eviction import eviction_named
from engine.config import EngineConfig
from engine.engine import Engine
from engine.scheduling.policies import policy_named
from engine.text.tokenizer import TokenizerError
from server.cli.banner import banner
from server.cli.serving import listen, run_server, trained_nanogpt, url_of
from server.core.event_log import Outbox, TraceFile
from server.core.models import ModelDirectory
from server.core.settings import ServerSettings
from server.http.request_log import LogWriter


class StartError(Exception):
    """The server cannot start. The message says why, in the command's words."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What to serve, where, and what to write down.

    model               directory, hub name or "bundled"
    model_dir           where further models are, with `--model auto`; at most `max_models` at once
    train, train_steps  train the model to serve first, for so many steps
    port                0 takes any free one
    paused              start with the engine held
    trace_file          where the whole event log is written as it happens
    request_log         "stderr", "off", or a file to append to
    until_stdin_closes  stop, too, when whoever started the server closes its stdin or dies
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

    def check(self) -> None:
        """Raise StartError for options that exclude each other."""
        if self.model_dir is not None and not self.model_dir.is_dir():
            raise StartError(f"--model-dir {self.model_dir} is not a directory")
        if self.model_dir is not None and self.trace_file is not None:
            raise StartError(
                "--trace-file holds one engine's log: leave it out, or give --model one model"
            )


def serve_until_stopped(start: Start, config: EngineConfig, settings: ServerSettings) -> None:
    """Load the model and serve it; returns after the drain.

    Raises StartError, and ConfigError for a setting that the engine does not take.
    """
    start.check()
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
            policy=policy_named(config.policy),
            eviction=eviction_named(config.eviction),
            log=outbox,
        )
        if start.paused:
            engine.pause()
        return engine, outbox

    from engine.compute.weights.checkpoint import (
        CheckpointError,  # brings torch, which takes seconds
    )

    try:
        with (
            trained_nanogpt(start.train_steps)
            if start.train
            else nullcontext(start.model) as source
        ):
            engine, outbox = load(source)
    except (CheckpointError, TokenizerError) as error:
        raise StartError(f"--model {start.model}: {error}") from error
    except MemoryError as error:
        raise StartError(
            f"no room for --max-kv-tokens {config.max_kv_tokens}: choose fewer"
        ) from error
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


def _open_closed_streams() -> None:
    """Whoever starts a server may have closed its output: then what it says goes nowhere.

    Left closed, the numbers of these streams would go to the next files and sockets, and what is
    meant for a terminal into them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 (for good)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        number = error.errno or 0  # negative: the name could not be looked up
        words = os.strerror(number) if number > 0 else str(error.strerror)
        reason = words.partition(" (while ")[0]  # Python says the address again
        raise StartError(
            f"cannot listen on {host}:{port}: {reason}; choose another --host or --port"
        ) from error


def _trace_file(path: Path | None) -> TraceFile | None:
    try:
        return TraceFile(path) if path else None
    except OSError as error:
        _cannot_write("--trace-file", path, error)


def _request_log(where: str) -> LogWriter | None:
    if where == "off":
        return None
    try:
        return LogWriter(None if where == "stderr" else Path(where))
    except OSError as error:
        _cannot_write("--request-log", where, error)


def _cannot_write(option: str, path: object, error: OSError) -> NoReturn:
    raise StartError(f"{option} {path} cannot be written: {error.strerror}") from error
