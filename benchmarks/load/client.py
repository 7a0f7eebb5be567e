"""A client on raw sockets, fast enough not to limit the measurement.

It stores bytes and times and parses them after the end, so it reads far more events per second than
httpx (14,000 on a core) or the OpenAI SDK (3,600). It can also misbehave:
disconnect in three ways, or read slowly.
"""

import asyncio
import bisect
import json
import re
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, cast

_EVENT = re.compile(rb"data: (.*?)\n\n", re.DOTALL)


@dataclass(slots=True)
class Reply:
    """A server's answer. `pieces` are (seconds, bytes) in order of arrival, `began` is the start."""

    began: float
    pieces: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def raw(self) -> bytes:
        """Everything, head and chunk sizes included."""
        return b"".join(data for _, data in self.pieces)

    @property
    def status(self) -> int:
        """The HTTP status; 0 without an answer."""
        head = self.raw[:12].split(b" ")
        return int(head[1]) if len(head) > 1 else 0

    def header(self, name: str) -> str:
        """A header's value, "" without one."""
        head = self.raw.partition(b"\r\n\r\n")[0].decode("latin-1").lower()
        return next(
            (x.partition(":")[2].strip() for x in head.split("\r\n") if x.startswith(name)), ""
        )

    def json(self) -> Any:
        """The body of an answer that is no stream."""
        return json.loads(self.raw.partition(b"\r\n\r\n")[2])

    def events(self) -> list[tuple[float, Any]]:
        """(seconds, data) of each event of a stream; the server puts whole events into a chunk."""
        ends = list(accumulate(len(data) for _, data in self.pieces))
        found = []
        for match in _EVENT.finditer(self.raw):
            at = self.pieces[bisect.bisect_left(ends, match.end())][0]
            data = match[1]
            found.append((at, "[DONE]" if data == b"[DONE]" else json.loads(data)))
        return found

    def tokens(self) -> list[tuple[float, int]]:
        """(seconds, token id) of a teaching stream."""
        return [(at, data["token_id"]) for at, data in self.events() if "token_id" in data]

    @property
    def complete(self) -> bool:
        """Whether a teaching stream is complete."""
        return b'{"done":true' in self.raw

    @property
    def error(self) -> str:
        """The code of the error that ended or rejected it; "" without one."""
        match = re.search(rb'"error":\{.*?"code":"(\w+)"', self.raw)
        return match[1].decode() if match else ""


class Call(asyncio.Protocol):
    """One request on a connection of its own."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.reply = Reply(time.perf_counter())
        self.ended: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.reply.began = time.perf_counter()
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.reply.pieces.append((time.perf_counter(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(self.reply)

    def leave(self, how: str) -> None:
        """ "close", "reset" (as a crashed client does) or "half-close" (it sends nothing more)."""
        if self.ended.done():
            return
        if how == "half-close":
            self.transport.write_eof()
            return
        if how == "reset":
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


def request(path: str, content: bytes | None, **headers: str) -> bytes:
    """The bytes of a POST; of a GET where there is no content."""
    lines = [f"{'GET' if content is None else 'POST'} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(content or b'')}"]
    lines += ["Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (content or b"")


async def send(
    url: str, path: str, content: bytes | None, *, receive_buffer: int = 0, **headers: str
) -> Call:
    """Send a request, whatever its body is; the answer comes as it comes."""
    host, _, port = url.removeprefix("http://").partition(":")
    sock = socket.socket()
    sock.setblocking(False)
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (host, int(port)))
    _, call = await loop.create_connection(
        lambda: Call(request(path, content, **headers)), sock=sock
    )
    return call


async def begin(url: str, path: str, body: Any, *, receive_buffer: int = 0, **headers: str) -> Call:
    """Send a JSON body; a GET where it is None."""
    content = None if body is None else json.dumps(body).encode()
    return await send(url, path, content, receive_buffer=receive_buffer, **headers)


async def ask(url: str, path: str, body: Any = None, **headers: str) -> Reply:
    """Send a request and wait for the whole answer."""
    return await (await begin(url, path, body, **headers)).ended


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile; 0.5 is the median."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def latencies(replies: Sequence[Reply]) -> dict[str, float]:
    """Milliseconds: TTFT and ITL of teaching streams, as their clients saw them."""
    ttft, itl = [], []
    for reply in replies:
        times = [at for at, _ in reply.tokens()]
        ttft.append(times[0] - reply.began)
        itl += [later - earlier for earlier, later in pairwise(times)]
    return {
        f"{name}_{label}_ms": round(quantile(values, share) * 1000, 2)
        for name, values in (("ttft", ttft), ("itl", itl))
        for label, share in (("p50", 0.5), ("p99", 0.99))
    }
