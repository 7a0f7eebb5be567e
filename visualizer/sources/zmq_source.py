"""A live feed over ZMQ: KV events of vLLM, SGLang or Underglass, or SGLang's forward-pass metrics.

A publisher numbers its messages. If one does not arrive, the source asks the replay endpoint for it.
Messages that the endpoint no longer has become an `events_missing` event. If the publisher is started
again, ZMQ reconnects, and the numbers start again.

Differs from vLLM's example subscriber: this one asks for all messages at the start, so that the cache
is known from the first message on. It can also bind, because vLLM's publisher connects to an address
without `*`.
"""

import re
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, BinaryIO

from engine.core.extras import needs_extra
from engine.core.log.vocabulary import Event
from visualizer.sources.frames import holds_map, write_frame
from visualizer.sources.kv_events import KV_EVENTS
from visualizer.sources.limits import MAX_LINE
from visualizer.sources.reader import SourceError, Translator
from visualizer.sources.sglang_metrics import SGLANG_METRICS

END = (-1).to_bytes(8, "big", signed=True)
MOST_WAITING = 100_000  # messages that ZMQ queues for a busy reader; it drops later ones
LARGEST_PAYLOAD = MAX_LINE // 2  # bytes; in base64, it still fits in a line
POLL_MS = 100  # milliseconds within which `close` takes effect
REPLAY_SECONDS = 5.0  # how long to wait for an answer of the replay endpoint

_TCP = re.compile(r"tcp://(\*|\[[0-9A-Fa-f:.]+\]|[\w.-]+):(\d{1,5})")


class ZmqSource:
    """Reads one publisher's messages as events.

    bound   whether the source binds its address, so that the publisher connects to it
    """

    def __init__(
        self,
        endpoint: str,
        *,
        replay: str | None = None,
        topic: str = "",
        bind: bool | None = None,
        save: BinaryIO | None = None,
        tell: Callable[[str], None] = lambda _note: None,
    ) -> None:
        """Open the sockets.

        endpoint  tcp://ADDRESS:PORT or ipc://PATH
        replay    the endpoint that sends missed messages again
        topic     receive only messages whose topic begins with this
        bind      whether to bind the address; None binds an address that has a `*`, and one of this
                  machine at which nothing listens
        save      a file to which each message is written as a line of a capture
        tell      is called with a note if messages cannot be replayed, or if it was a guess to bind

        Raises SourceError for a wrong or unreachable address.
        """
        _check("endpoint", endpoint)
        if replay is not None:
            _check("replay", replay)
        with needs_extra("listening to an engine"):
            import zmq
        self._zmq, self._save, self._tell = zmq, save, tell
        self.endpoint, self._replay = endpoint, replay
        self.bound = _should_bind(endpoint) if bind is None else bind
        self._has_begun, self._lock = False, threading.Lock()
        self._context = zmq.Context()
        self._sub = self._socket(zmq.SUB)
        self._sub.rcvhwm = MOST_WAITING
        self._sub.subscribe(topic)
        try:
            (self._sub.bind if self.bound else self._sub.connect)(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            verb = "bind" if self.bound else "connect to"
            raise SourceError(f"endpoint: cannot {verb} {endpoint}: {error.strerror}") from error
        if self.bound and bind is None and "*" not in endpoint:
            tell(
                f"nothing listens at {endpoint}, so this command binds it and waits for an engine to "
                "connect; if the engine binds the endpoint itself, start the engine first"
            )
        self._closed = threading.Event()
        self._translator: Translator | None = None
        self._next: int | None = None
        self._replayed: dict[
            int, int
        ] = {}  # message number -> hash of a payload that may come again

    def close(self) -> None:
        """End `events`, from any thread. If `events` never began, close the sockets.

        Otherwise `events` closes them: it is not safe to close ZMQ's sockets while another thread uses
        them.
        """
        self._closed.set()
        with self._lock:
            if not self._has_begun:
                self._context.destroy(linger=0)

    resting = ""

    def events(self) -> Generator[list[Event], None, None]:
        """Yield the events of each message as it arrives. Call this method only once.

        The sockets are closed when the generator ends, so iterate to its end or close it, in the thread
        that iterates. Raises SourceError for a message of an unknown kind.
        """
        with self._lock:
            if self._closed.is_set():
                return
            self._has_begun = True
        try:
            if self._replay:
                yield from self._ask(0)
            while not self._closed.is_set():
                if self._sub.poll(POLL_MS):
                    yield from self._receive(self._sub.recv_multipart())
            if self._translator:
                yield list(self._translator.end())  # type: ignore[arg-type]
        finally:
            self._context.destroy(linger=0)

    def _socket(self, kind: int) -> Any:
        one = self._context.socket(kind)
        one.linger = 0
        one.ipv6 = "[" in f"{self.endpoint} {self._replay}"
        one.setsockopt(self._zmq.MAXMSGSIZE, LARGEST_PAYLOAD)
        return one

    def _receive(self, parts: list[bytes]) -> Iterator[list[Event]]:
        topic, number, payload = _checked(self.endpoint, parts, range(3, 4))
        seq = int.from_bytes(number, "big")
        if self._was_replayed(seq, payload):
            return
        if self._replay and self._next is not None and seq != self._next:
            if seq < self._next:  # the publisher was started again
                self._next = None
            yield from self._ask(self._next or 0)
            if self._was_replayed(seq, payload):
                return
        yield self._translate(topic, seq, payload)

    def _was_replayed(self, seq: int, payload: bytes) -> bool:
        """Return whether a replay has already delivered this message."""
        return self._replayed.pop(seq, None) == hash(payload)

    def _translate(self, topic: bytes, seq: int, payload: bytes) -> list[Event]:
        line = write_frame(topic, seq, payload, time.time())
        if self._translator is None:
            # The payload's first byte tells metrics from KV events.
            reader = SGLANG_METRICS if holds_map(line) else KV_EVENTS
            self._translator = reader.translator()
        if self._save:
            self._save.write(line + b"\n")
            self._save.flush()
        self._next = seq + 1
        return list(self._translator.feed(line))  # type: ignore[arg-type]

    def _ask(self, first: int) -> Iterator[list[Event]]:
        """Ask the replay endpoint for the messages from number `first` on, and yield their events."""
        assert self._replay
        self._replayed.clear()
        dealer = self._socket(self._zmq.DEALER)
        dealer.rcvhwm = MOST_WAITING  # the publisher drops messages beyond this number
        try:
            try:
                dealer.connect(self._replay)
            except self._zmq.ZMQError as error:
                raise SourceError(
                    f"replay: cannot connect to {self._replay}: {error.strerror}"
                ) from error
            dealer.send_multipart([b"", first.to_bytes(8, "big")])
            deadline = time.monotonic() + REPLAY_SECONDS
            while not self._closed.is_set():
                if dealer.poll(POLL_MS):
                    # Some versions send the topic before the number, others do not.
                    *before, number, payload = _checked(
                        self._replay, dealer.recv_multipart(), range(2, 5)
                    )
                    if number == END:
                        return
                    seq = int.from_bytes(number, "big")
                    if self._next is None or seq >= self._next:
                        self._replayed[seq] = hash(payload)
                        yield self._translate(before[-1] if before else b"", seq, payload)
                    deadline = time.monotonic() + REPLAY_SECONDS
                elif time.monotonic() > deadline:
                    self._tell(
                        f"{self._replay} does not answer: messages from {first} on cannot be replayed"
                    )
                    return
        finally:
            dealer.close()


def _check(name: str, endpoint: str) -> None:
    found = _TCP.fullmatch(endpoint)
    if found and 0 < int(found[2]) < 65536:
        return
    if endpoint.startswith("ipc://") and len(endpoint) > len("ipc://"):
        return
    raise SourceError(f"{name} must be tcp://ADDRESS:PORT or ipc://PATH, got {endpoint!r}")


def _checked(endpoint: str, parts: list[bytes], counts: range) -> list[bytes]:
    """Return a message's frames. Raises SourceError for a wrong number of frames or a bad number."""
    if len(parts) in counts and len(parts[-2]) == 8:
        return parts
    sizes = ", ".join(str(len(part)) for part in parts)
    raise SourceError(
        "a message must be a topic, a number of 8 bytes and a payload; "
        f"{endpoint} sent {len(parts)} frames of {sizes} bytes"
    )


def _should_bind(endpoint: str) -> bool:
    """Return whether to bind the endpoint: it has a `*`, or nothing listens there on this machine.

    vLLM binds only addresses with a `*`; its publisher connects to any other address.
    """
    found = _TCP.fullmatch(endpoint)
    if not found:
        return False
    host, port = found[1].strip("[]"), int(found[2])
    if host == "*":
        return True
    if host != "localhost" and not host.startswith("127.") and host != "::1":
        return False
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return True
    return False
