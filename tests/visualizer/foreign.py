"""A log as a reader of another engine's trace would make it: our own, with parts taken away."""

import hashlib
from collections.abc import Collection

import msgspec

from engine.core.log import Event, EventLog
from engine.core.log import vocabulary as v
from engine.simulation.facts import FACTS, Fact, Knowledge

ENGINE, RECORDER = "vLLM 0.32.0", "underglass-vllm 1"
INFERRED: tuple[Fact, ...] = ("waiting_reasons", "preemption_causes", "eviction_causes")
NO_TEXT: tuple[Fact, ...] = ("token_ids", "texts", "probabilities")


def foreign_label(request: int) -> str:
    """Return a label like vLLM's: "cmpl-", 32 hex digits, "-0"."""
    return f"cmpl-{hashlib.md5(str(request).encode()).hexdigest()}-0"


def foreign(
    log: EventLog,
    *,
    inferred: Collection[Fact] = INFERRED,
    unknown: Collection[Fact] = NO_TEXT,
    gap_after: int | None = None,
) -> EventLog:
    """Return `log` as if it came from vLLM, without the unknown facts.

    gap_after  a step after which 7 messages are missing
    """
    known: dict[Fact, Knowledge] = dict.fromkeys(FACTS, "recorded")
    for fact in inferred:
        known[fact] = "inferred"
    for fact in unknown:
        known[fact] = "unknown"
    source: dict[str, object] = {"engine": ENGINE, "recorder": RECORDER, "facts": known}
    events = [_stripped(event, known, source) for event in log]
    if gap_after is not None:
        ends = [i for i, event in enumerate(events) if isinstance(event, v.StepFinished)]
        events.insert(ends[gap_after - 1] + 1, v.EventsMissing(7, "a disk was full"))
    return EventLog.from_events(events)


def _stripped(event: Event, known: dict[Fact, Knowledge], source: dict[str, object]) -> Event:
    replace = msgspec.structs.replace
    lacks = {fact for fact, knowledge in known.items() if knowledge == "unknown"}
    match event:
        case v.RunStarted():
            return replace(event, source=source, classes={}, model={}, tokenizer={})
        case v.RequestArrived():
            event = replace(event, label=foreign_label(event.request), sampling={})
            if "texts" in lacks:
                event = replace(event, texts=[""] * len(event.prompt))
            if "token_ids" in lacks:
                event = replace(event, prompt=[-1] * len(event.prompt))
            return replace(event, t={}) if "arrivals" in lacks else event
        case v.StepScheduled() if "waiting_reasons" in lacks:
            return replace(event, blocked=None)
        case v.Preempted() if "preemption_causes" in lacks:
            return replace(event, needed_by=-1)
        case v.RadixEvicted() | v.BlockEvicted() if "eviction_causes" in lacks:
            return replace(event, needed_by=-1)
        case v.StepFinished():
            rows = [
                replace(
                    row,
                    ids=[-1] * len(row.ids) if "token_ids" in lacks else row.ids,
                    texts=[""] * len(row.ids) if "texts" in lacks else row.texts,
                )
                for row in event.tokens
            ]
            times = {} if "step_times" in lacks else dict(event.t)
            for name in ("logprobs", "top_logprobs"):
                times.pop(name, None)
            return replace(event, tokens=rows, t=times)
    return event
