"""The engine in a process of its own: the messages, and the parent's end of the connection.

    event loop                        child (`engine_child.py`)
    ProcessClient --commands-->       a reader thread posts them to the engine thread
                  <--one report per step--   the engine thread sends it
                  <--shared memory--  since when the engine thread has been busy

The API process does not share its GIL with the engine, so a step does not wait while streams are
written. The messages are msgpack over a socket pair, each preceded by its length. The child runs the
same `InProcessClient` and engine thread as `--one-process`. It imports torch and has the weights; the
parent has the tokenizer, and validates requests.

Either process notices when the other one ends: its socket closes. If the child dies, all requests end
with an error; if the parent dies, the child ends, even in a step that holds the GIL: the lifeline, a
pipe into which nothing is written, closes with the parent, and then the kernel's SIGIO ends the child.
The child is in a session of its own and ignores SIGINT and SIGTERM, so that Ctrl-C in a terminal, or an
operator that signals a whole group, does not end it before the drain.

Source: vLLM's `EngineCoreProc` (`vllm/v1/engine/core.py`) and `AsyncMPClient` (`core_client.py`).

Differs from vLLM, which uses ZMQ sockets, detokenizes in the API process and ends the server when the
child dies. Here the child detokenizes, because the event log has the texts, and `Models` starts a new
child once if one dies.
"""

import asyncio
import mmap
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from engine.core.config import ConfigError, EngineConfig
from engine.core.log.vocabulary import AnyEvent
from engine.core.sampling_params import SamplingParams
from engine.core.scheduling.admission import RequestValidator
from engine.core.tokenizer import Tokenizer
from engine.simulation.workload import Arrival
from server.core.commands import AnyCommand, LoadedAdapter, Report
from server.core.engine_client import (
    EngineClient,
    EngineDiedError,
    Inputs,
)
from server.core.engine_thread import busy_seconds
from server.core.event_log import KVSource
from underglass.child import environment, python

END_SECONDS = 5.0  # how long a child may take to end before it is killed
SOCKET_BYTES = (
    1 << 20
)  # a report of a large step fits, so the engine thread rarely waits for the loop
RECEIVED_BYTES = 1 << 18  # at once
LENGTH = 4  # bytes


class Launch(msgspec.Struct, array_like=True, tag=True):
    """The first message: call the function `factory`, "module:name", for an `InProcessClient`."""

    factory: str
    arguments: dict[str, Any]


class Do(msgspec.Struct, array_like=True, tag=True):
    """Start the engine thread, collect young garbage, or open the next run's trace file.

    The last of these is answered with Done.
    """

    what: Literal["start", "collect", "open_next_log"]


class Post(msgspec.Struct, array_like=True, tag=True):
    """Run commands after the current step, without a step between them."""

    commands: list[AnyCommand]


class Cancel(msgspec.Struct, array_like=True, tag=True):
    """Drop a command that has not run yet."""

    reply: int


class Stop(msgspec.Struct, array_like=True, tag=True):
    """End the engine thread after its step; answered with Done."""

    timeout: float


class Restart(msgspec.Struct, array_like=True, tag=True):
    """Begin another run; answered with Ready or Failed. An abort is (step, request)."""

    config: EngineConfig
    paused: bool
    inputs: list[Arrival | tuple[int | None, int]]


ToChild = Launch | Do | Post | Cancel | Stop | Restart


class Ready(msgspec.Struct, array_like=True, tag=True):
    """A run can be started.

    clock      the perf_counter at which the engine's clock was 0; the same in all processes
    tokenizer  (file or directory, name) of a tokenizer that has been read from there, or None
    """

    config: EngineConfig
    max_context: int | None
    paused: bool
    started: list[AnyEvent]
    clock: int
    tokenizer: tuple[str, str] | None
    kv_source: KVSource | None
    adapters: list[LoadedAdapter]


class Failed(msgspec.Struct, array_like=True, tag=True):
    """An exception, in answer to Launch or Restart."""

    kind: str
    message: str


class EngineFailed(msgspec.Struct, array_like=True, tag=True):
    """The engine thread has ended with an exception."""

    reason: str


class Done(msgspec.Struct, array_like=True, tag=True):
    """An answer. `problem` is "" if all went well."""

    problem: str = ""


class LaunchError(Exception):
    """The child could not start an engine. `kind` is the name of its exception's class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


_encode = msgspec.msgpack.Encoder().encode


def frame(message: object) -> bytes:
    """Return a message as it is sent: its length, then the message as msgpack."""
    body = _encode(message)
    return len(body).to_bytes(LENGTH, "big") + body


def start_child(files: Sequence[int]) -> "subprocess.Popen[bytes]":
    """Start an engine's process; a replica's server has another function for it, `gateway/warm.py`."""
    return subprocess.Popen(
        python("server.core.engine_child", *files),
        stdin=subprocess.DEVNULL,
        pass_fds=files,
        start_new_session=True,
        env=environment(),
    )


class ProcessClient(EngineClient):
    """An engine in a child process, and the connection to it."""

    def __init__(self) -> None:
        """Start the child. It waits for `load`."""
        self._dead = False
        self._socket, theirs = socket.socketpair()
        lifeline, held = os.pipe()
        self._lifeline = os.fdopen(held, "wb", 0)  # open until one of the two processes has ended
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        with theirs, tempfile.TemporaryFile() as shared:
            shared.truncate(8)
            self._shared = mmap.mmap(shared.fileno(), 8)
            self._busy = memoryview(self._shared).cast("d")
            self._child = start_child((theirs.fileno(), shared.fileno(), lifeline))
        os.close(lifeline)
        self._received = bytearray()
        self._unsent = bytearray()
        self._decode = msgspec.msgpack.Decoder(Report | Ready | Failed | EngineFailed | Done).decode
        self._answers: deque[asyncio.Future[Any]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Task[None] | None = None

    def load(self, launch: Launch, tokenizer_of: Callable[[Ready], Tokenizer]) -> None:
        """Wait until the engine is loaded; not on the event loop. Raises LaunchError."""
        with suppress(OSError):  # it has ended already
            self._socket.sendall(frame(launch))
        while not (messages := list(self._messages())):
            data = b""
            with suppress(ConnectionResetError):
                data = self._socket.recv(RECEIVED_BYTES)
            if not data:
                raise LaunchError("", self._how_it_ended())
            self._received += data
        if isinstance(messages[0], Failed):
            raise LaunchError(messages[0].kind, messages[0].message)
        self.tokenizer = tokenizer_of(messages[0])
        self._begin(messages[0])

    def _begin(self, ready: Ready) -> None:
        self.config, self.max_context = ready.config, ready.max_context
        self.paused, self.started, self.kv_source = ready.paused, ready.started, ready.kv_source
        self._clock, self.adapters = ready.clock, ready.adapters
        self._validator = RequestValidator(self.config, self.tokenizer)

    def now(self) -> int:
        """See `EngineClient`."""
        return (time.perf_counter_ns() - self._clock) // 1000

    def validate(self, tokens: Sequence[int], params: SamplingParams, priority: int) -> None:
        """See `EngineClient`."""
        self._validator.validate(tokens, params, priority, max_context=self.max_context)

    def start(self, deliver: Callable[[Report], None], failed: Callable[[str, bool], None]) -> None:
        """See `EngineClient`. Both functions are called on the event loop."""
        self._deliver, self._failed = deliver, failed
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._socket.setblocking(False)
            self._loop.add_reader(self._socket, self._on_readable)
        elif self._dead:  # since the previous run was stopped
            failed("the engine's process has ended", True)
        self._send(Do("start"))

    def post(self, *commands: AnyCommand) -> None:
        """See `EngineClient`."""
        self._send(Post(list(commands)))

    def cancel(self, reply: int) -> None:
        """See `EngineClient`."""
        self._send(Cancel(reply))

    def busy_seconds(self) -> float:
        """See `EngineClient`."""
        return 0.0 if self._dead else busy_seconds(self._busy)

    async def stop(self, timeout: float) -> bool:
        """See `EngineClient`."""
        try:
            async with asyncio.timeout(timeout + 1):
                answer = await self._ask(Stop(timeout))
        except (TimeoutError, EngineDiedError):
            return self._dead
        return bool(answer == Done())

    async def open_next_log(self) -> str:
        """See `EngineClient`."""
        answer: Done = await self._ask(Do("open_next_log"))
        return answer.problem

    async def restart(self, config: EngineConfig, *, paused: bool, inputs: Inputs) -> None:
        """See `EngineClient`. The same child starts the next run, so the weights stay in memory."""
        packed = [one if isinstance(one, Arrival) else (one.step, one.request) for one in inputs]
        answer = await self._ask(Restart(config, paused, packed))
        if isinstance(answer, Failed):
            kinds = {"ConfigError": ConfigError, "MemoryError": MemoryError}
            raise kinds.get(answer.kind, RuntimeError)(answer.message)
        self._begin(answer)

    def collect(self) -> None:
        """See `EngineClient`."""
        super().collect()
        self._send(Do("collect"))

    def kill(self) -> bool:
        """See `EngineClient`."""
        self._child.kill()
        return True

    async def unload(self) -> None:
        """See `EngineClient`."""
        self._disconnect()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Close the connection and wait for the child, which ends then. Kill it if it does not."""
        self._disconnect()
        try:
            self._child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._busy.release()
        self._shared.close()
        self._lifeline.close()

    def _send(self, message: ToChild) -> None:
        """Send a message, or queue it if the socket is full. A dead child gets none."""
        if self._dead:
            return
        assert self._loop is not None
        idle = not self._unsent  # otherwise `_on_writable` is called when there is room
        self._unsent += frame(message)
        if idle:
            self._on_writable()

    async def _ask(self, message: ToChild) -> Any:
        """Send a message and return its answer. Raises EngineDiedError."""
        if self._dead:
            raise EngineDiedError("the engine's process has ended")
        answer = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        self._send(message)
        return await answer

    def _disconnect(self) -> None:
        """Close the connection, so that the child ends."""
        self._dead = True
        if self._loop is not None and not self._loop.is_closed() and self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket.close()

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(RECEIVED_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            self._ending = asyncio.create_task(self._tell())
            return
        self._received += data
        for message in self._messages():
            if isinstance(message, Report):
                self._deliver(message)
            elif isinstance(message, EngineFailed):
                self._failed(message.reason, False)
            elif not (answer := self._answers.popleft()).done():
                answer.set_result(message)

    def _messages(self) -> Iterator[Any]:
        """Yield the complete messages that have been received."""
        start, received = 0, self._received
        while len(received) - start >= LENGTH:
            end = start + LENGTH + int.from_bytes(received[start : start + LENGTH], "big")
            if len(received) < end:
                break
            yield self._decode(memoryview(received)[start + LENGTH : end])
            start = end
        del received[:start]

    def _on_writable(self) -> None:
        assert self._loop is not None
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:  # the child has ended: `_on_readable` says so
            self._unsent.clear()
            return
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._socket, self._on_writable)
        else:
            self._loop.remove_writer(self._socket)

    async def _tell(self) -> None:
        """Fail all that waits for a child that has ended by itself."""
        error = EngineDiedError(await asyncio.to_thread(self._how_it_ended))
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(error)
        self._failed(str(error), True)

    def _how_it_ended(self) -> str:
        """Wait for a child whose socket is closed, and describe its end."""
        try:
            code = self._child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            code = self._child.wait()
        if code < 0:
            return f"the engine's process was killed by {signal.Signals(-code).name}"
        return f"the engine's process ended with exit code {code}"


def launch(
    factory: str, arguments: dict[str, Any], tokenizer_of: Callable[[Ready], Tokenizer]
) -> ProcessClient:
    """Start a child, wait until it has an engine, and return its client; not on the event loop.

    factory       "module:name" of a function that returns an `InProcessClient`
    arguments     its keyword arguments, as values that msgpack can carry
    tokenizer_of  returns a tokenizer like the engine's

    Raises LaunchError.
    """
    client = ProcessClient()
    try:
        client.load(Launch(factory, arguments), tokenizer_of)
    except BaseException:
        client.kill()
        client.close()
        raise
    return client
