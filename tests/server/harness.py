"""What the server's tests share: starting a server process, reading streams and the event feed."""

import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec
import psutil
from httpx_sse import EventSource
from prometheus_client.parser import text_string_to_metric_families

from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import AnyEvent, Event, Keyframe, RequestArrived
from server.gateway.warm import SERVER, ForkedProcess, Warm
from server.process import BackgroundServer, serve_arguments

TIMEOUT = 60.0
Serve = Callable[..., BackgroundServer]  # `start`, in a fixture that ends the servers


def start(**options: Any) -> BackgroundServer:
    """A server process over the alphabet runner; see `app_under_test.py` for the options."""
    return ForkedServer("tests.server.app_under_test", json.dumps(options, default=str))


class ForkedServer(BackgroundServer):
    """A server that does not have to import anything."""

    def __init__(self, program: str, *arguments: str, **environment: str) -> None:
        self._environment = environment
        super().__init__([program, *arguments])

    def _launch(self, command: Any) -> Any:
        return forked(*command, stderr=self._errors.fileno(), **self._environment)


def serve_forked(model: str | None = None, **options: object) -> BackgroundServer:
    """`serve_in_background`, but neither of the two processes imports anything."""
    return ForkedServer("underglass.commands", *serve_arguments(model, **options))


@cache
def _warm() -> Warm:
    """Importing takes longer than most tests, so a process that has imported all forks servers."""
    return Warm("tests.server.app_under_test", "server.gateway.app", *SERVER)


def forked(program: str, *arguments: str, stderr: int, **environment: str) -> ForkedProcess:
    """Run `main` of a module in a new process, with pipes to its standard input and output."""
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    files = [read_in, write_out, stderr]
    process = _warm().fork(f"{program}:main", arguments, files, **environment)
    os.close(read_in)
    os.close(write_out)
    process.stdin, process.stdout = os.fdopen(write_in, "wb", 0), os.fdopen(read_out, "rb")
    return process


def engines_of(server: BackgroundServer) -> list[psutil.Process]:
    """A server's engine processes: the other ones that were forked with its standard output."""
    process = psutil.Process(server.process.pid)
    output = _output_of(process)
    every = process.parent().children()
    return [one for one in every if one != process and _output_of(one) == output]


def _output_of(process: psutil.Process) -> str:
    with suppress(FileNotFoundError, PermissionError):  # it has ended
        return str(Path(f"/proc/{process.pid}/fd/1").readlink())
    return ""


@contextmanager
def ending(launch: Serve) -> Iterator[Serve]:
    """Yield a function that starts servers like `launch`; they end with the block."""
    servers: list[BackgroundServer] = []

    def start_one(*arguments: Any, **options: Any) -> BackgroundServer:
        servers.append(launch(*arguments, **options))
        return servers[-1]

    try:
        yield start_one
    finally:
        for server in servers:
            server.process.kill()
            server.stop()


def http(url: str, **options: Any) -> httpx.Client:
    # Without certificates, which take longer to load than most requests here take to answer.
    return httpx.Client(base_url=url, trust_env=False, verify=False, timeout=TIMEOUT, **options)


def fetch(url: str, path: str, method: str = "GET", **options: Any) -> httpx.Response:
    """Send a request on a connection of its own."""
    with http(url) as client:
        return client.request(method, path, **options)


def get(url: str, path: str, **params: str) -> Any:
    return fetch(url, path, params=params or None).json()


def post(url: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    return fetch(url, path, "POST", json=body, headers=headers)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of an answer that has OpenAI's error object."""
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return answer.status_code, error["code"]


def completed(url: str, **headers: str) -> str:
    """The answer to a short prompt."""
    body = {"prompt": "x", "max_tokens": 3}
    text: str = sse_data(post(url, "/v1/completions", body, **headers).text)[-1]["full_text"]
    return text


def http_request(path: str, body: object, *headers: str) -> bytes:
    """A POST; it leaves the connection open, unless a header says otherwise."""
    content = json.dumps(body)
    head = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        *headers,
    )
    return "\r\n".join([*head, "", content]).encode()


def curl(url: str, body: str) -> "subprocess.Popen[bytes]":
    """curl, as a class uses it."""
    command = ["curl", "-sN", f"{url}/v1/completions", "-d", body]
    command += ["-H", "Content-Type: application/json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def trace(url: str, **params: str) -> EventLog:
    return EventLog.from_bytes(fetch(url, "/trace", params=params or None).content)


def metrics(url: str) -> dict[tuple[str, ...], float]:
    """The samples of /metrics by their name and their labels, without the model's and the engine's."""
    answer = fetch(url, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = [v for k, v in sample.labels.items() if k not in ("model_name", "engine")]
            values[(sample.name, *labels)] = sample.value
    return values


def until_ready(url: str, status: int = 200) -> None:
    until(url, "/ready", lambda answer: answer.status_code == status)


def until(url: str, path: str, wanted: Callable[[httpx.Response], bool]) -> None:
    """Ask until the server has noticed, at intervals that leave the cores to what is waited for."""
    interval = threading.Event()
    with http(url) as client:
        while not wanted(client.get(path)):
            interval.wait(0.01)


def limit_files(server: BackgroundServer, size: int) -> None:
    """Let no file of the server grow beyond `size` bytes; -1 is no limit."""
    for process in (psutil.Process(server.process.pid), *engines_of(server)):
        process.rlimit(psutil.RLIMIT_FSIZE, (size, -1))


def sse_data(text: str) -> list[Any]:
    """The data of every event of a stream; "[DONE]" stays text."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


class EventStream:
    """A viewer of a server's or a gateway's GET /events. Used with `with`; iterating yields events."""

    _decoder: msgspec.json.Decoder[Any]

    def __init__(
        self,
        url: str,
        last_event_id: str | bytes | None = None,
        model: str | None = None,
        *,
        past: bool = False,
    ) -> None:
        self.url = url
        self._client = http(url)
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        params = {} if model is None else {"model": model}
        params |= {"past": "true"} if past else {}
        self._stream = self._client.stream("GET", "/events", headers=headers, params=params)
        self.events: list[Any] = []
        self.dropped: list[int] = []
        self.status: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._sent = EventSource(self._stream.__enter__()).iter_sse()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stream.__exit__(*error)
        self._client.close()

    def __iter__(self) -> Iterator[Any]:
        return (event for event in self._read() if event is not None)

    def _read(self) -> Iterator[Any]:
        """The log's events, and None for each new status."""
        for sent in self._sent:
            if not sent.data:  # httpx-sse also yields an event for a comment, the keep-alive
                continue
            if sent.event == "dropped":
                self.dropped.append(sent.json()["dropped"])
            elif sent.event == "status":
                self.status = sent.json()
                yield None
            else:
                event = self._decoder.decode(sent.data)
                self._take(event, sent.id)
                self.events.append(event)
                yield event

    def _take(self, event: Any, number: str) -> None:
        """Handle an event that has been received."""

    def until(self, wanted: Callable[[Any], bool]) -> Any:
        """Read on until an event matches; return it."""
        return next(event for event in self if wanted(event))

    def until_status(self, **wanted: object) -> None:
        """Read on until the server says this about itself."""
        while not wanted.items() <= self.status.items():
            next(self._read())

    def until_not_ready(self) -> str:
        """Read on until the server says why it accepts no requests; return the reason."""
        while not self.status.get("not_ready"):
            next(self._read())
        reason: str = self.status["not_ready"]
        return reason


class Feed(EventStream):
    """A viewer that folds what it sees."""

    _decoder = msgspec.json.Decoder(AnyEvent)

    def __init__(self, url: str, *arguments: Any, **options: Any) -> None:
        super().__init__(url, *arguments, **options)
        self.state = State()
        self.run = ""
        self.seq = -1

    def _take(self, event: Event, number: str) -> None:
        self.run, _, seq = number.partition(":")
        self.seq = int(seq)
        self.state.apply(event)

    def until_held(self, *labels: str) -> None:
        """Read on until the server holds back the submissions with these labels."""
        self.until_status(held=list(labels))

    def until_kind(self, kind: type[Event], count: int = 1) -> Any:
        """Read on until the `count`-th event of a kind."""
        for _ in range(count):
            event = self.until(lambda event: isinstance(event, kind))
        return event

    def queued(self, body: Any, path: str = "/v1/completions", **options: Any) -> "Caller":
        """Send a request, and read on until it has arrived."""
        caller = Caller(self.url, path, body, **options)
        self.until_kind(RequestArrived)
        return caller

    def keyframe(self) -> Keyframe:
        """The event that every viewer joins with."""
        event = next(iter(self))
        assert isinstance(event, Keyframe)
        return event


@contextmanager
def watch(url: str, **options: Any) -> Iterator[Feed]:
    """A viewer that has joined: it folds what happens from now on."""
    with Feed(url, **options) as feed:
        feed.keyframe()
        yield feed


def queue(url: str, *bodies: Any, path: str = "/v1/completions") -> list["Caller"]:
    """Send requests one after the other, each once the one before it has arrived."""
    with watch(url) as feed:
        return [feed.queued(body, path) for body in bodies]


class Caller:
    """A client down at the socket, for everything that well-behaved clients do not do."""

    def __init__(
        self, url: str, path: str, body: Any, *, receive_buffer: int = 0, **headers: str
    ) -> None:
        more = (f"{name.replace('_', '-')}: {value}" for name, value in headers.items())
        self._connect(url, receive_buffer)
        self.socket.sendall(http_request(path, body, "Connection: close", *more))

    @classmethod
    def raw(cls, url: str, *lines: str) -> "Caller":
        """A request of which nothing is there but these lines."""
        caller = cls.open(url)
        caller.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        return caller

    @classmethod
    def open(cls, url: str) -> "Caller":
        """A connection on which nothing has been sent yet."""
        caller = cls.__new__(cls)
        caller._connect(url)
        return caller

    def _connect(self, url: str, receive_buffer: int = 0) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect((host, int(port)))

    def close(self) -> None:
        """Leave politely."""
        self.socket.close()

    def reset(self) -> None:
        """Leave with a reset, as a crashed client or a pulled cable behind a proxy does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def half_close(self) -> None:
        """Say that nothing more will be sent, and wait for the server to hang up."""
        self.socket.shutdown(socket.SHUT_WR)
        while self.socket.recv(65536):
            pass
        self.socket.close()

    def read_all(self) -> str:
        """Everything up to the server's hanging up."""
        data = b""
        while received := self.socket.recv(65536):
            data += received
        self.socket.close()
        return data.decode()
