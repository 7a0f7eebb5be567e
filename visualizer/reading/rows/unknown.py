"""Remove values that a foreign log does not know from its rows, because a count of 0 would be false."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.simulation.facts import Fact, knowledge

_Row = TypeVar("_Row", bound=msgspec.Struct)

# A column is None if one of its facts is unknown. Columns that are None without times are left out.
REQUEST_FACTS: dict[str, tuple[Fact, ...]] = {
    "cached_tokens": ("cached_tokens",),
    "preemptions": ("preemptions",),
    "finish_reason": ("finish_reasons",),
    "arrived_step": ("arrivals",),
    "admitted_step": ("admissions",),
    "queue_ms": ("arrivals", "admissions", "step_times"),
    "ttft_ms": ("arrivals", "step_times"),
    "e2e_ms": ("arrivals", "step_times"),
}
STEP_FACTS: dict[str, tuple[Fact, ...]] = {
    **dict.fromkeys(
        ("tokens", "prefill_tokens", "catchup_tokens", "decode_tokens", "sampled_tokens", "batch"),
        ("scheduled_tokens",),
    ),
    "cached_tokens": ("cached_tokens",),
    "running": ("admissions",),
    "waiting": ("queue",),
    "arrived": ("arrivals",),
    "admitted": ("admissions",),
    "preempted": ("preemptions",),
    "finished": ("finish_reasons",),
    "evicted_blocks": ("evictions",),
    "used_blocks": ("block_tables",),
    "cached_blocks": ("prefix_tree",),
    "free_blocks": ("free_blocks",),
}
TOKEN_FACTS: dict[str, tuple[Fact, ...]] = {"id": ("token_ids",), "text": ("texts",)}


def source_of(log: EventLog) -> Mapping[str, Any]:
    """Return `run_started.source` of a log; empty for a log of this project's engine."""
    match log[0] if len(log) else None:
        case v.RunStarted(source=source):
            return source
        case v.Keyframe(state=state):
            return state.source
    return {}


def without_unknown(
    rows: Iterable[_Row], facts: Mapping[str, tuple[Fact, ...]], source: Mapping[str, Any]
) -> Iterator[_Row]:
    """Yield the rows after setting a column to None unless the source knows all of its `facts`."""
    unknown = [
        name
        for name, needed in facts.items()
        if any(knowledge(source, fact) == "unknown" for fact in needed)
    ]
    for row in rows:
        for name in unknown:
            setattr(row, name, None)
        yield row


def plus(count: int | None, more: int) -> int | None:
    """Return a count and `more`; None if the count is not known."""
    return None if count is None else count + more
