"""A network between the gateway and one replica, which can hold, cut and slow its connections.

The gateway knows the replica by this proxy's address. A replica that is started again may have another
port, as on another machine; the proxy's stays.
"""

import asyncio
import re
import socket
import struct
from contextlib import suppress
from typing import Any, cast

_REQUEST = re.compile(rb"[A-Z]+ ([^ ?]+)[^ ]* HTTP/1.1\r\n")
_PIECE = 1024  # bytes that a slow connection passes at once


class Link:
    """A TCP proxy on a port of its own. Lives on the event loop; `target` is (host, port)."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.target: tuple[str, int] | None = None
        self._host, self._port = host, 0
        self._rate: float | None = None
        self._server: asyncio.Server | None = None
        self._wires = set["_Wire"]()
        self._holds_new = False
        self._held_path = ""  # nothing passes after a request of a path that ends with it
        self._full: list[socket.socket] = []

    @property
    def url(self) -> str:
        """The address for the gateway."""
        return f"http://{self._host}:{self._port}"

    async def open(self) -> None:
        """Accept connections; after the first time on the same port."""
        self._make_room()
        self._server = await asyncio.start_server(self._accept, self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Break all connections and accept no more."""
        self._close_server()
        self._make_room()
        for wire in list(self._wires):
            wire.reset()

    def fill(self) -> None:
        """Let new connections wait for ever, as if the machine had vanished; others go on."""
        self._close_server()
        listener = socket.create_server((self._host, self._port), backlog=0)
        self._full = [listener]
        for _ in range(2):  # the kernel accepts one more than the backlog, and drops all others
            filler = socket.socket()
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect((self._host, self._port))
            self._full.append(filler)

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _make_room(self) -> None:
        for sock in self._full:
            sock.close()
        self._full = []

    def hold_path(self, path: str) -> None:
        """Pass nothing more on connections with a request of a path that ends with `path`."""
        self._held_path = path
        for wire in self._wires:
            if wire.path.endswith(path):
                wire.flows.clear()

    def hold(self, every: int = 1) -> None:
        """Pass nothing more on every `every`-th connection; on new ones neither if `every` is 1."""
        for wire in list(self._wires)[::every]:
            wire.flows.clear()
        self._holds_new = every == 1

    def slow(self, rate: float) -> None:
        """Pass at most `rate` bytes per second on each connection."""
        self._rate = rate

    def heal(self) -> None:
        """Pass everything again, at once. What was held arrives late, but whole."""
        self._rate, self._holds_new, self._held_path = None, False, ""
        for wire in self._wires:
            wire.flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.target is not None
        try:
            there, back = await asyncio.open_connection(*self.target)
        except OSError:
            _reset(writer)  # nothing listens there
            return
        wire = _Wire(writer, back)
        if self._holds_new:
            wire.flows.clear()
        self._wires.add(wire)
        try:
            await asyncio.gather(
                self._pass(reader, back, wire, asks=True), self._pass(there, writer, wire)
            )
        finally:
            self._wires.discard(wire)
            wire.close()

    async def _pass(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        wire: "_Wire",
        *,
        asks: bool = False,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65536 if self._rate is None else _PIECE):
                if asks and (head := _REQUEST.match(data)):
                    wire.path = head[1].decode()
                    if self._held_path and wire.path.endswith(self._held_path):
                        wire.flows.clear()
                await wire.flows.wait()
                if self._rate is not None:
                    await asyncio.sleep(len(data) / self._rate)
                target.write(data)
                await target.drain()
            await wire.flows.wait()
            if target.can_write_eof():
                target.write_eof()
            return
        wire.reset()


class _Wire:
    """A connection and its continuation to the replica.

    path   that of its last request
    flows  cleared while it is held
    """

    def __init__(self, *ends: asyncio.StreamWriter) -> None:
        self._ends = ends
        self.path = ""
        self.flows = asyncio.Event()
        self.flows.set()

    def reset(self) -> None:
        self.flows.set()
        for end in self._ends:
            _reset(end)

    def close(self) -> None:
        for end in self._ends:
            end.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = cast("Any", writer.get_extra_info("socket"))
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
