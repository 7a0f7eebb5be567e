"""Publish KV events over ZMQ, as vLLM's `ZmqEventPublisher` does.

    PUB     to every subscriber, for each step with a change: [topic, sequence number, batch]
    ROUTER  ask with a number, get these three parts for it and each later one in the buffer, and at the
            end ["", -1, ""]

Sequence numbers are 8 bytes, big-endian, from 0; batches are msgpack (`kv_events.py`).

The engine thread publishes. That never waits: ZMQ's own thread sends, and it drops messages to a
subscriber that does not read. The subscriber sees a gap in the numbers and asks for a replay. A second
thread answers replays.

Source: vLLM 0.32, `vllm/distributed/kv_events.py`.

Differs from vLLM: the address is always bound, so it must be one of this machine; vLLM binds only
wildcards and connects to other addresses. The replay socket is always there, on the next port.
"""

import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import zmq

from engine.core.config import ConfigError
from engine.core.log.vocabulary import Event
from server.core.event_log import KVSource
from server.core.kv_events import KVEventBatch, KVEvents

# Batches that can be replayed; vLLM's `buffer_steps`.
REPLAYED_BATCHES = 10_000
# Batches that wait for a slow subscriber; later ones are dropped. Well below the number above, so that
# the subscriber can still have what it has missed.
UNSENT_BATCHES = 1_000
SEND_BUFFER_BYTES = 128 << 10  # the kernel's; by default it grows to megabytes
LARGEST_QUESTION = 1024  # bytes; a peer that sends more is disconnected
LAST_MILLISECONDS = 500  # how long the last batches may take when the server stops
_NO_SALTS: Mapping[str, str] = {}
END = (-1).to_bytes(8, "big", signed=True)

_ENDPOINT = re.compile(r"tcp://(\*|\[[0-9A-Fa-f:.]+\]|[\w.-]+):(\d{1,5})")


def endpoints(value: str) -> tuple[str, str]:
    """Return the addresses of both sockets. A port alone means the loopback address.

    Port 0 picks free ports. Raises ConfigError.
    """
    match = _ENDPOINT.fullmatch(f"tcp://127.0.0.1:{value}" if value.isdigit() else value)
    port = int(match[2]) if match else -1
    if match is None or port > 65534:
        raise ConfigError(
            "kv_events must be a port up to 65534, or tcp://ADDRESS:PORT with * or an address of this "
            f"machine, got {value!r}"
        )
    return f"tcp://{match[1]}:{port}", f"tcp://{match[1]}:{port + 1 if port else 0}"


class KVPublisher:
    """Both sockets, bound, and the thread that answers replays.

    endpoint, replay_endpoint  the bound addresses
    topic                      the first part of every message; subscribers filter by its prefix
    """

    replayed_batches = REPLAYED_BATCHES
    unsent_batches = UNSENT_BATCHES

    def __init__(self, value: str, topic: str = "") -> None:
        """Bind the sockets. Raises ConfigError for a wrong address and OSError for one in use."""
        wanted = endpoints(value)
        self.topic = topic
        self._topic = topic.encode()
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._pub.sndhwm = UNSENT_BATCHES
        self._pub.linger = LAST_MILLISECONDS
        self._pub.setsockopt(zmq.SNDBUF, SEND_BUFFER_BYTES)
        self._replay = self._context.socket(zmq.ROUTER)
        self._replay.sndhwm = REPLAYED_BATCHES + 1  # an answer is complete
        self._replay.linger = LAST_MILLISECONDS
        sockets = (self._pub, self._replay)
        try:
            self.endpoint, self.replay_endpoint = map(_bind, sockets, wanted)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise OSError(error.errno, str(error.strerror)) from error
        self._events = KVEvents()
        self._encode = msgspec.msgpack.Encoder().encode
        self._count = 0
        self._sent: deque[tuple[bytes, bytes]] = deque(maxlen=REPLAYED_BATCHES)
        self._lock = threading.Lock()  # held while the buffer changes or is copied
        self._thread = threading.Thread(target=self._answer_replays, name="kv-replay", daemon=True)
        self._thread.start()

    def publish(self, events: Iterable[Event], salts: Mapping[str, str] = _NO_SALTS) -> None:
        """Publish what some new events of the log changed. One thread at a time may call it.

        salts  by digest: the salts of the requests that arrive with these events
        """
        self._events.salts, apply = salts, self._events.apply
        changes = [change for event in events if (change := apply(event)) is not None]
        if not changes:
            return
        number = self._count.to_bytes(8, "big")
        batch = self._encode(KVEventBatch(time.time(), changes))
        self._count += 1
        with self._lock:
            self._sent.append((number, batch))
        self._pub.send_multipart((self._topic, number, batch))

    def close(self) -> None:
        """Send what is left and close both sockets; nothing is published afterwards."""
        self._pub.close()
        self._context.term()  # wakes the other thread and waits for its socket
        self._thread.join()

    @property
    def source(self) -> KVSource:
        """The addresses and limits, for a router."""
        limits = self.replayed_batches, self.unsent_batches
        return KVSource(self.endpoint, self.replay_endpoint, self.topic, *limits)

    def _answer_replays(self) -> None:
        with self._replay, suppress(zmq.ContextTerminated):
            while True:
                question = self._replay.recv_multipart()
                if len(question) == 3:  # its sender, a delimiter, the number to begin with
                    self._answer(question[0], int.from_bytes(question[2], "big"))

    def _answer(self, client: bytes, first: int) -> None:
        with self._lock:
            sent = list(self._sent)
        for number, batch in sent:
            if int.from_bytes(number, "big") >= first:
                self._replay.send_multipart((client, b"", self._topic, number, batch))
        self._replay.send_multipart((client, b"", b"", END, b""))


def _bind(socket: "zmq.Socket[Any]", endpoint: str) -> str:
    socket.ipv6 = "[" in endpoint
    socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_QUESTION)
    socket.bind(endpoint)
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
