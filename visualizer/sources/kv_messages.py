"""KV events of vLLM and SGLang, as they come over the wire.

A payload is `[ts, events, rank]`; `rank` may be missing. An event is a map with a `type`, in which
fields with their default value are omitted; in versions before mid-2026 it is an array that begins with
the type. A hash is a 64-bit integer, signed or unsigned, or bytes.

Source: vLLM 0.32, `vllm/distributed/kv_events.py`; SGLang 0.5.23, `srt/disaggregation/kv_events.py`.
Both have appended fields over time but have never moved one.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from engine.core.log import LogError
from visualizer.sources.frames import Frame, check_time

_SHOWN = 60  # characters of a wrong event in a message


class Stored(msgspec.Struct, tag_field="type", tag="BlockStored", kw_only=True):
    """A chain of blocks was cached. A tier below the GPU may omit the token ids."""

    block_hashes: list[Any]
    parent_block_hash: Any = None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Any = None
    group_idx: int | None = None


class Removed(msgspec.Struct, tag_field="type", tag="BlockRemoved"):
    """Blocks were removed from a medium."""

    block_hashes: list[Any]
    medium: str | None = None
    group_idx: int | None = None


class Cleared(msgspec.Struct, tag_field="type", tag="AllBlocksCleared"):
    """The whole cache was cleared."""


KVEvent = Stored | Removed | Cleared
# In an event's array, the fields follow the type in this order.
_FIELDS = {one.__struct_config__.tag: one.__struct_fields__ for one in (Stored, Removed, Cleared)}


@dataclass(frozen=True)
class Batch:
    """A message: the cache's changes in one step, in order.

    at    when it was published, in seconds since 1970
    rank  the data-parallel rank that published it; 0 if the message does not name one
    """

    seq: int
    topic: str
    at: float
    rank: int
    events: list[KVEvent]


def read_batch(frame: Frame) -> Batch:
    """Decode a message's payload. Raises LogError if it does not contain KV events."""
    payload = frame.decoded()
    if not isinstance(payload, list) or len(payload) < 2:
        raise LogError(f"a KV-event message must be [time, events, rank], got {_shown(payload)}")
    at, events, rank = (*payload, None)[:3]
    if isinstance(at, bool) or not isinstance(at, int | float):
        raise LogError(f"the time of a KV-event message must be a number, got {_shown(at)}")
    check_time("the time of a KV-event message", at)
    if not isinstance(events, list):
        raise LogError(f"the events of a KV-event message must be a list, got {_shown(events)}")
    if rank is not None and (type(rank) is not int or not 0 <= rank < 1 << 31):
        raise LogError(
            f"the rank of a KV-event message must be from 0 to 2**31 - 1, got {_shown(rank)}"
        )
    return Batch(frame.seq, frame.topic, at, rank or 0, [_event(event) for event in events])


def hash_name(value: Any) -> str:
    """Return a block's hash in hex. Raises LogError for a value that is not a hash."""
    if type(value) is int and -(1 << 63) <= value < 1 << 64:
        return f"{value & (1 << 64) - 1:016x}"
    if isinstance(value, bytes) and 1 <= len(value) <= 64:
        return value.hex()
    raise LogError(f"a block hash must be 64 bits or up to 64 bytes, got {_shown(value)}")


def _event(value: Any) -> KVEvent:
    if isinstance(value, list) and value and isinstance(value[0], str) and value[0] in _FIELDS:
        names = _FIELDS[value[0]]
        value = {"type": value[0], **dict(zip(names, value[1:], strict=False))}
    try:
        event: KVEvent = msgspec.convert(value, KVEvent)
    except (msgspec.ValidationError, OverflowError) as error:
        raise LogError(f"a KV event is invalid: {error}: {_shown(value)}") from error
    return event


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
