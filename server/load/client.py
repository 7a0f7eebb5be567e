"""A client on raw sockets, fast enough not to limit the measurement.

It stores bytes and times and parses them after the end, so it reads far more events per second than
httpx (14,000 on a core) or the OpenAI SDK (3,600). It needs no library. `benchmarks/load` also lets it
misbehave: disconnect in three ways, or read slowly.
"""

import asyncio
import bisect
import json
import re
import socket
import ssl
import struct
import time
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, cast
from urllib.parse import urlsplit

_EVENT = re.compile(rb"data: ?(.*?)\r?\n\r?\n", re.DOTALL)


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

    def _body(self) -> tuple[bytes, list[tuple[int, int]]]:
        """Return the body without chunk sizes, and (end in the body, end in `raw`) of each chunk."""
        raw = self.raw
        at = raw.find(b"\r\n\r\n") + 4
        if at < 4 or "chunked" not in self.header("transfer-encoding"):
            return raw[at:], [(len(raw) - at, len(raw))]
        parts, ends, length = list[bytes](), list[tuple[int, int]](), 0
        while (line := raw.find(b"\r\n", at)) > 0:
            size = int(raw[at:line].partition(b";")[0], 16)
            if not size:
                break
            part = raw[line + 2 : line + 2 + size]
            at = line + 2 + size + 2
            length += len(part)
            parts.append(part)
            ends.append((length, line + 2 + len(part)))
        return b"".join(parts), ends or [(0, len(raw))]

    @property
    def body(self) -> bytes:
        """The body without the sizes of its chunks."""
        return self._body()[0]

    def json(self) -> Any:
        """The body of an answer that is no stream. Raises ValueError if it is not JSON."""
        return json.loads(self.body)

    def events(self) -> list[tuple[float, Any]]:
        """(seconds, data) of each event of a stream, when its last byte came."""
        body, chunks = self._body()
        ends = list(accumulate(len(data) for _, data in self.pieces))
        found = []
        for match in _EVENT.finditer(body):
            end, raw_end = chunks[bisect.bisect_left(chunks, (match.end(),))]
            last = raw_end - (end - match.end())
            at = self.pieces[bisect.bisect_left(ends, last)][0]
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
        """Send the request."""
        self.transport = cast("asyncio.Transport", transport)
        self.reply.began = time.perf_counter()
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Store the bytes and their time."""
        self.reply.pieces.append((time.perf_counter(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the reply."""
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


def request(host: str, path: str, content: bytes | None, **headers: str) -> bytes:
    """The bytes of a POST; of a GET where there is no content."""
    lines = [f"{'GET' if content is None else 'POST'} {path} HTTP/1.1", f"Host: {host}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(content or b'')}"]
    lines += ["Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (content or b"")


async def send(
    url: str, path: str, content: bytes | None, *, receive_buffer: int = 0, **headers: str
) -> Call:
    """Send a request, whatever its body is; the answer comes as it comes."""
    where = urlsplit(url)
    host, secure = where.hostname or "", where.scheme == "https"
    port = where.port or (443 if secure else 80)
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"host": host, "port": port}
    if receive_buffer:  # it has to be set before the connection is made
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await loop.sock_connect(sock, (host, port))
        options = {"sock": sock}
    sent = request(
        where.netloc.rpartition("@")[2], where.path.rstrip("/") + path, content, **headers
    )
    _, call = await loop.create_connection(
        lambda: Call(sent), **options, ssl=ssl.create_default_context() if secure else None
    )
    return call


async def begin(url: str, path: str, body: Any, **options: Any) -> Call:
    """Send a JSON body; a GET where it is None. See `send` for the options."""
    content = None if body is None else json.dumps(body).encode()
    return await send(url, path, content, **options)


async def ask(url: str, path: str, body: Any = None, **headers: str) -> Reply:
    """Send a request and wait for the whole answer."""
    return await (await begin(url, path, body, **headers)).ended
