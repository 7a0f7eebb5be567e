"""LMTP's frames: a word, a space, JSON.

    client   GENERATE {"stream_id": 1, "prompt": [791, 264], "max_tokens": 8}
    server   TOKEN [{"stream_id": 1, "token": 311, "logprob": -0.2, "finish_reason": null, ...}]

What the server sends are lists, because several tokens may leave in one frame. LMQL's own client
(`lmql/models/lmtp/lmtp_client.py`) reads nothing else.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode

# LMQL sorts log-probabilities; JSON has no minus infinity, and msgspec would write null.
LEAST_LOGPROB = -1e30


class FrameError(ValueError):
    """A frame cannot be read. The message says what is wrong with it."""


def frame(word: str, content: object) -> str:
    """A whole frame."""
    return f"{word} {_encode(content).decode()}"


def list_frame(word: str, items: Iterable[bytes]) -> str:
    """A frame of items that are encoded already."""
    return f"{word} [{b','.join(items).decode()}]"


def item(content: object) -> bytes:
    """One item of a TOKEN or MSG frame."""
    return _encode(content)


def split(text: str) -> tuple[str, str]:
    """A frame's word and its JSON, unread. Raises FrameError where there is no word or no JSON."""
    word, space, content = text.partition(" ")
    if not space or not word.isascii() or not word.isupper():
        raise FrameError("a frame is a word in capitals, a space and JSON: GENERATE {...}")
    return word, content


def items_of(content: str) -> list[dict[str, Any]]:
    """The items of a TOKEN or MSG frame. Raises FrameError for anything else."""
    try:
        return msgspec.json.decode(content, type=list[dict[str, Any]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise FrameError(str(error)) from error
