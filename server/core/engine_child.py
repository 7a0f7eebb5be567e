"""The engine's process: `python -m server.core.engine_child`, started by `engine_process.py`.

    reader thread     receives the parent's messages and posts the commands
    prepare thread    compiles grammars, then posts their submissions
    engine thread     sends its reports itself
    main thread       loads the model, then waits

When the parent closes the connection, or dies, the process ends. A thread that waits for this cannot
run while a step holds the GIL, so a signal ends the process as well; see `_end_with`.
"""

import asyncio
import ctypes
import fcntl
import importlib
import mmap
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from engine.core.config import ConfigError
from engine.core.extras import MissingExtraError
from engine.models.text.hf_tokenizer import HFTokenizer
from engine.simulation.workload import Abort, Arrival
from server.core.engine_client import InProcessClient, StartError, freeze_heap
from server.core.engine_process import (
    LENGTH,
    Cancel,
    Do,
    Done,
    EngineFailed,
    Failed,
    Launch,
    Post,
    Ready,
    Restart,
    Stop,
    ToChild,
    frame,
)

# Exceptions with a message for the operator; a traceback of all others is printed.
_EXPECTED = (ConfigError, MemoryError, MissingExtraError, StartError, ValueError)


class _Child:
    """The engine's process: an `InProcessClient` that obeys the parent."""

    def __init__(self, connection: socket.socket, busy: "memoryview[float]") -> None:
        self._connection = connection
        self._busy = busy
        self._sending = threading.Lock()
        self._running = False  # the engine thread
        self._client: InProcessClient | None = None

    def run(self) -> None:
        """Obey until the parent closes the connection; this is noticed during the load, too."""
        messages = self._messages()
        launch = next(messages)
        assert isinstance(launch, Launch)
        threading.Thread(target=self._obey, args=(messages,), name="reader", daemon=True).start()
        module, _, name = launch.factory.partition(":")

        def load() -> None:
            self._client = getattr(importlib.import_module(module), name)(**launch.arguments)
            self._client.busy = self._busy

        self._answer_ready(load)
        freeze_heap()
        threading.Event().wait()  # `_obey` ends the process

    def _answer_ready(self, begin: Callable[[], None]) -> None:
        """Begin a run, and tell the parent that it can be started, or why not."""
        try:
            begin()
        except Exception as error:
            if not isinstance(error, _EXPECTED):
                traceback.print_exc()
            self._send(Failed(type(error).__name__, str(error)))
            return
        client = self._client
        assert client is not None
        tokenizer = client.tokenizer
        source = (
            (str(tokenizer.path), tokenizer.name) if isinstance(tokenizer, HFTokenizer) else None
        )
        clock = time.perf_counter_ns() - client.now() * 1000
        run = client.config, client.max_context, client.paused, client.started
        self._send(Ready(*run, clock, source, client.kv_source, client.adapters))

    def _obey(self, messages: Iterator[Any]) -> None:
        code = 1
        try:
            for message in messages:
                self._do(message)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            if self._client is not None and not self._running:  # otherwise the parent has died
                self._client.recording.close()
            os._exit(code)

    def _do(self, message: Any) -> None:
        client = self._client
        assert client is not None
        match message:
            case Post():
                client.post(*message.commands)
            case Do("start"):
                self._running = True
                client.start(self._send, lambda reason, _died: self._send(EngineFailed(reason)))
            case Cancel():
                client.cancel(message.reply)
            case Stop():
                threading.Thread(target=self._stop, args=(client, message.timeout)).start()
            case Do("open_next_log"):
                self._send(Done(client.recording.open_next()))
            case Restart():
                inputs = [
                    one if isinstance(one, Arrival) else _abort(*one) for one in message.inputs
                ]
                again = client.restart(message.config, paused=message.paused, inputs=inputs)
                self._answer_ready(lambda: asyncio.run(again))
            case Do("collect"):
                client.collect()

    def _stop(self, client: InProcessClient, timeout: float) -> None:
        self._running = not asyncio.run(client.stop(timeout))
        self._send(Done("its step did not end" if self._running else ""))

    def _messages(self) -> Iterator[Any]:
        decode = msgspec.msgpack.Decoder(ToChild).decode
        with self._connection.makefile("rb") as stream:
            while len(length := stream.read(LENGTH)) == LENGTH:
                yield decode(stream.read(int.from_bytes(length, "big")))

    def _send(self, message: object) -> None:
        with self._sending, suppress(OSError):  # the parent has died: `_obey` ends this process
            self._connection.sendall(frame(message))


def _abort(step: int | None, request: int) -> Abort:
    return Abort(step=step, request=request)


def _end_with(lifeline: int) -> None:
    """End the process when the other end of this pipe is closed, even while a step holds the GIL.

    The kernel then sends SIGIO. The handler is libc's `_exit`, because one of Python's would wait for
    the GIL, and because the default of SIGIO ends a process on Linux only.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    libc.signal(signal.SIGIO, ctypes.cast(libc._exit, ctypes.c_void_p))
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)


def main() -> None:
    """Be the engine of the process that has started this one."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    connection, shared, lifeline = map(int, sys.argv[1:])
    _end_with(lifeline)
    busy = memoryview(mmap.mmap(shared, 8)).cast("d")
    os.close(shared)
    _Child(socket.socket(fileno=connection), busy).run()


if __name__ == "__main__":
    main()
