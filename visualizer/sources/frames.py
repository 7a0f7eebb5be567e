"""Read and write a ZMQ publisher's messages as lines of a capture file.

vLLM and SGLang publish each message in three frames: topic, number, payload. `underglass listen --save`
writes a capture, which has one line for each message:

    {"at": 1795307642.63, "topic": "kv", "seq": 0, "payload": "k8tB2sAM..."}

at       when the message was received, in seconds since 1970
payload  the third frame, unchanged, in base64

A line may also have `batch`, the decoded payload, in place of `payload`.
"""

import base64
import binascii
import math
import re
from typing import Any

import msgspec

from engine.core.log import LogError
from engine.core.log.vocabulary import EventsMissing

_BEGINNING = re.compile(rb'\s*\{[^{}\[\]]*?"(?:payload"\s*:\s*"(....)|batch"\s*:\s*(.))', re.DOTALL)
_MAP = re.compile(rb"[\x80-\x8f\xde\xdf]")  # the first byte of a msgpack map


class Frame(msgspec.Struct):
    """A message as it was published, with either `payload` or `batch`."""

    seq: int
    topic: str = ""
    at: float | None = None
    payload: str | None = None
    batch: Any = None

    def decoded(self) -> Any:
        """Return the payload as plain values. Raises LogError if it is not base64 of msgpack."""
        if self.payload is None:
            return self.batch
        try:
            return msgspec.msgpack.decode(base64.b64decode(self.payload, validate=True))
        except binascii.Error as error:
            raise LogError(f"payload must be base64: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LogError(f"payload must be msgpack: {error}") from error


def write_frame(topic: bytes, seq: int, payload: bytes, at: float) -> bytes:
    """Return the line of a message, without its line break. `at` is in seconds since 1970."""
    return msgspec.json.encode(
        {
            "at": round(at, 6),
            "topic": topic.decode("utf-8", "replace"),
            "seq": seq,
            "payload": base64.b64encode(payload).decode(),
        }
    )


def read_frame(line: bytes) -> Frame:
    """Return the message in a line. Raises LogError if the line is not a message of a capture."""
    try:
        frame = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LogError(f"the line is not a message of a capture: {error}") from error
    if not 0 <= frame.seq < 1 << 63:
        raise LogError(f"seq must be from 0 to 2**63 - 1, got {frame.seq}")
    if frame.at is not None:
        check_time("at", frame.at)
    return frame


def check_time(name: str, seconds: float) -> None:
    """Raise LogError unless `seconds` is a time since 1970 and before the year 5138."""
    if not (math.isfinite(seconds) and 0 <= seconds < 1e11):
        raise LogError(f"{name} must be a time in seconds since 1970, got {seconds}")


def holds_map(beginning: bytes) -> bool | None:
    """Return whether the payload in a file's first line is a map; None if the file is not a capture."""
    match = _BEGINNING.match(beginning)
    if not match or b'"seq"' not in match[0]:
        return None
    if match[2]:
        return match[2] == b"{"
    try:
        return bool(_MAP.match(base64.b64decode(match[1])))
    except binascii.Error:
        return None


def gap_before(seq: int, expected: int, at: int) -> EventsMissing:
    """Return the gap before message `seq`: messages were lost, or the publisher was started again."""
    if seq < expected:
        words = f"the engine was started again, and its numbers begin at {seq}"
        return EventsMissing(0, words, t={"at": at})
    last = seq - 1
    words = f"number {last}" if last == expected else f"numbers {expected} to {last}"
    return EventsMissing(seq - expected, words, t={"at": at})


_decoder = msgspec.json.Decoder(Frame)
