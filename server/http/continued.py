"""What a gateway and a replica tell each other about a stream, so that another replica can continue it.

A gateway asks for marks with the header `MARKS`. The replica then ends each write with one, between two
bytes `EDGE`, which JSON never contains. The gateway passes a write on, without its mark, when the mark
has arrived, so that it knows exactly which tokens its client has:

    t[0,311,285],[1,17],    the tokens of the write: of each choice its number and their ids
    x{"error": {...}}       in place of an error event: this replica cannot go on, but another can
    e                       the stream has ended

The replica also names the stream in the header `NAME`, which gives the ids and the time in an answer.
To continue a stream, the gateway sends the client's body again, followed by the entries of all marks as
one JSON list, with the stream's name and the length of that list in the header `CONTINUED`.

Source: Dynamo repeats a request with its tokens so far in the same way (`lib/llm/src/migration.rs`).
There the frontend detokenizes, so workers need not say what a client has already received.
"""

import hashlib
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import msgspec

from server.core.commands import OutputDelta
from server.http.errors import ApiError, bad_request

MARKS = "x-underglass-marks"
NAME = "x-underglass-stream"
CONTINUED = "x-underglass-continued"

EDGE = b"\x1e"
END = EDGE + b"e" + EDGE

_encode = msgspec.json.Encoder().encode
_writes = msgspec.json.Decoder(list[list[int]])


def tokens_mark(deltas: Iterable[OutputDelta]) -> bytes:
    """Return the mark of a write with this output."""
    entries = [_encode([delta.choice, *delta.ids]) + b"," for delta in deltas]
    return b"%bt%b%b" % (EDGE, b"".join(entries), EDGE)


def lost_mark(error: ApiError) -> bytes:
    """Return the mark of a stream that this replica cannot end."""
    return EDGE + b"x" + error.body() + EDGE


def split_marks(data: bytes) -> tuple[list[bytes], bytes]:
    """Return writes and their marks in turn, and the rest, whose mark has not arrived yet."""
    *parts, rest = data.split(EDGE)
    if len(parts) % 2:  # a mark has begun
        rest = parts.pop() + EDGE + rest
    return parts, rest


def is_transient(error: ApiError) -> bool:
    """Return whether another replica could serve the request: the fault is not the request's own."""
    return error.status == 503 or error.error["code"] == "forward_pass_failed"


class StreamName:
    """The name of a stream: `seed` gives its answer's ids, and `created` is its time."""

    def __init__(self, seed: str = "", created: int = 0) -> None:
        self.seed = seed or secrets.token_hex(16)
        self.created = created or int(time.time())

    def id(self, length: int, *what: object) -> str:
        """Return the hexadecimal id of a part of the answer, the same on each replica."""
        text = " ".join(map(str, (self.seed, *what)))
        return hashlib.sha256(text.encode()).hexdigest()[:length]

    def __str__(self) -> str:
        return f"{self.seed}-{self.created}"


@dataclass(frozen=True, slots=True)
class Continued:
    """A stream that began on another replica.

    writes  the entries of all marks, in order: a choice's number and the ids of its tokens
    """

    name: StreamName
    writes: list[list[int]]

    @classmethod
    def split(cls, header: str, body: bytes) -> tuple[Self, bytes]:
        """Return what a gateway says of a stream, and the client's body. Raises ApiError."""
        try:
            seed, created, length = header.split("-")
            end = len(body) - int(length)
            return cls(StreamName(seed, int(created)), _writes.decode(body[end:])), body[:end]
        except (ValueError, msgspec.DecodeError) as error:
            message = f"{CONTINUED} must be SEED-TIME-LENGTH, and the body must end with the marks"
            raise bad_request(CONTINUED, message) from error

    @property
    def outputs(self) -> dict[int, list[int]]:
        """By choice: its tokens so far."""
        outputs = defaultdict[int, list[int]](list)
        for choice, *ids in self.writes:
            outputs[choice] += ids
        return outputs

    def cut(self, outputs: Iterable[OutputDelta]) -> list[OutputDelta]:
        """Cut each choice's output into the pieces in which its client has got it.

        A serializer that gets them writes the same chunks again, so it numbers the next one right.
        """
        whole, begins = {delta.choice: delta for delta in outputs}, Counter[int]()
        pieces = []
        for choice, *ids in self.writes:
            begin = begins[choice]
            begins[choice] += len(ids)
            pieces.append(whole[choice].piece(begin, begins[choice]))
        return pieces


def tokens_of(marks: bytes, choice: int = 0) -> list[int]:
    """Return one choice's tokens in the marks of a stream, which are a JSON list."""
    return [token for number, *ids in _writes.decode(marks) if number == choice for token in ids]
