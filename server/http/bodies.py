"""Bodies: how large one may be, and where it is read.

A body is checked three times, each time before the next step could cost more:

    bytes      while it arrives (`middleware.BodyLimit`)
    values     before it is parsed: a value of one byte becomes an object of 100 bytes
    fields     by pydantic or msgspec, which stop at the first error

Parsing and validation hold the GIL. A body of more than `INLINE_BYTES` is read on a thread of its own,
so that the event loop goes on with the streams in between. One thread serves all requests: then only
one body at a time exists as objects.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from server.core.models import Models
from server.core.prompt_length import MAX_CHARACTERS, room

MAX_JSON_DEPTH = 64
INLINE_BYTES = 16 << 10  # about a millisecond

# Token ids take up to 8 bytes each in JSON ("151936, "), English text 4 to 5, escaped Chinese 6 to 12.
TOKEN_BYTES = 16
# Above this, a body could not be handled within 0.3 s and 100 MB. It is reached at 196,608 tokens.
MOST_BYTES = 4 << 20
# What a request has beside its prompt: biases, stop strings, messages; and batches of short prompts.
OTHER_VALUES = 1 << 16

# /engine/step is the only route under it that takes a body: {"steps": 100000}.
CONTROL_PATHS = "/engine/"
CONTROL_BYTES = 1 << 10

_reader = ThreadPoolExecutor(1, thread_name_prefix="bodies")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The largest body.

    bytes    its length, or that of an LMTP frame
    values   its JSON's values: elements of lists and members of objects
    """

    bytes: int
    values: int


def body_limits(models: Models) -> BodyLimits:
    """Derive the largest legitimate body from the context length.

    A request's longest prompt fills the context. A request of many prompts has `MAX_CHARACTERS` of text
    at most, however short the context is, so that much is always allowed. With `--model auto` the
    context of a model that is not loaded is unknown, and the largest limit holds.
    """
    most_tokens = (MOST_BYTES - MAX_CHARACTERS) // TOKEN_BYTES
    tokens = most_tokens if models.directory is not None else min(room(models.first), most_tokens)
    return BodyLimits(MAX_CHARACTERS + TOKEN_BYTES * tokens, OTHER_VALUES + tokens)


async def read_apart(size: int, read: Callable[[], _T]) -> _T:
    """Return what `read` makes of `size` bytes; on the reader thread if they are many."""
    if size <= INLINE_BYTES:
        return read()
    return await asyncio.get_running_loop().run_in_executor(_reader, read)


def depth_and_values(body: bytes) -> tuple[int, int]:
    """How deep JSON is nested and how many values it has at most, without parsing it.

    Exact for valid JSON, up to the one value that an empty list or object does not have. For anything
    else the parser stops no later than here.
    """
    opened = body.count(b"[") + body.count(b"{")
    if opened <= MAX_JSON_DEPTH and len(body) <= INLINE_BYTES:  # so is nearly every body
        return opened, opened + body.count(b",")
    # Without escapes, every quotation mark begins or ends a string.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(plain.translate(_MARKS, _OTHERS), np.int8)
    outside = ~np.bitwise_xor.accumulate(marks == _QUOTE)
    marks = marks[outside]
    depth = np.cumsum(np.where(marks == _COMMA, 0, marks), dtype=np.int32)
    return int(depth.max(initial=0)), int(np.count_nonzero(marks > 0))


_QUOTE, _COMMA = 0, 2
_MARKS = bytes.maketrans(b'"[{]},', bytes([_QUOTE, 1, 1, 255, 255, _COMMA]))
_OTHERS = bytes(set(range(256)) - set(b'"[{]},'))
