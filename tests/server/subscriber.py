"""A subscriber of KV events, as in vLLM's example: it asks for a replay when numbers are missing."""

from collections.abc import Iterator
from typing import Any

import msgspec
import zmq

END = (-1).to_bytes(8, "big", signed=True)
Event = dict[str, Any]


class Subscriber:
    """Both sockets of one client. Used with `with`."""

    def __init__(self, endpoint: str, replay: str, topic: str = "", **options: int) -> None:
        self._context = zmq.Context()
        self._sub = self._context.socket(zmq.SUB)
        for name, value in options.items():
            setattr(self._sub, name, value)
        self._sub.subscribe(topic)
        self._sub.connect(endpoint)
        self._replay = self._context.socket(zmq.DEALER)
        self._replay.connect(replay)
        for socket in (self._sub, self._replay):
            socket.rcvtimeo = 60_000

    def __enter__(self) -> "Subscriber":
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.destroy(linger=0)

    def arrives(self, milliseconds: int = 0) -> bool:
        """Whether a message can be received."""
        return bool(self._sub.poll(milliseconds))

    def receive(self) -> tuple[bytes, int, bytes]:
        """The next message: topic, number, batch."""
        topic, number, batch = self._sub.recv_multipart()
        return topic, int.from_bytes(number, "big"), batch

    def replay(self, first: int) -> list[tuple[bytes, int, bytes]]:
        """Everything in the buffer from a number on."""
        self._replay.send_multipart([b"", first.to_bytes(8, "big")])
        answers = []
        while (answer := self._replay.recv_multipart())[2] != END:
            assert answer[0] == b""
            answers.append((answer[1], int.from_bytes(answer[2], "big"), answer[3]))
        assert answer == [b"", b"", END, b""]
        return answers


class View:
    """What a router knows: the prefix that each hash stands for."""

    def __init__(self) -> None:
        self.prefixes: dict[int, tuple[int, ...]] = {}

    def apply(self, event: Event) -> None:
        if event["type"] == "AllBlocksCleared":
            self.prefixes.clear()
        elif event["type"] == "BlockRemoved":
            for one in event["block_hashes"]:
                del self.prefixes[one]
        else:
            size, parent = event["block_size"], event["parent_block_hash"]
            prefix = self.prefixes[parent] if parent is not None else ()
            assert len(event["token_ids"]) == size * len(event["block_hashes"])
            for at, one in enumerate(event["block_hashes"]):
                prefix += tuple(event["token_ids"][at * size : (at + 1) * size])
                assert one not in self.prefixes
                self.prefixes[one] = prefix


def events_of(batch: bytes) -> Iterator[Event]:
    _ts, events, rank = msgspec.msgpack.decode(batch)
    assert rank == 0
    yield from events
