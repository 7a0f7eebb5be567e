"""The event log without names and texts: `--trace-text off` of a server, `--no-text` of a page.

Lengths, decisions, blocks and times stay, so every picture except the words is the same. Left out, or
replaced by as many unknown ids (-1) or empty pieces:

    the label of a request and of a held prefix: the pictures call it r1, r2, ...
    ids and texts of prompts, outputs and drafts
    sampling parameters that name text or tokens: stop, stop_token_ids, logit_bias, bad_words,
        allowed_token_ids, structured
    the most likely other tokens, those that a grammar forbade, the stop string that matched, and the
        details of an error
    expert loads: the choice of experts depends on the token so much that it gives the token away

Such a log cannot be replayed: which prompts share a prefix is unknown. `Workload.from_log`
rejects it.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from engine.cluster.cluster_log import ClusterLog
from engine.cluster.events import AnyClusterEvent, Of, Routed
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import (
    BlocksReported,
    Event,
    Keyframe,
    KeyframeState,
    PrefixAdopted,
    PrefixHeld,
    RequestArrived,
    RequestFinished,
    RunStarted,
    ScheduledRow,
    StepFinished,
    StepScheduled,
)

_ABOUT_TEXT = (
    *("stop", "stop_token_ids", "logit_bias", "bad_words", "allowed_token_ids", "structured"),
)


def without_text(event: Event) -> Event:
    """Return the event without names and texts."""
    changes: dict[str, Any] = {}
    match event:
        case RunStarted():
            changes = {
                "tokenizer": event.tokenizer | {"trace_text": "off"},
                "source": _source_without_text(event.source),
            }
        case RequestArrived():
            changes = {
                "prompt": _unknown(event.prompt),
                "texts": _blanks(event.texts),
                "label": "",
                "sampling": _without(event.sampling, _ABOUT_TEXT),
            }
        case StepScheduled():
            changes = {"rows": _without_drafts(event.rows)}
        case StepFinished():
            tokens = [
                replace(row, ids=_unknown(row.ids), texts=_blanks(row.texts))
                for row in event.tokens
            ]
            measured = _without(event.t, ("top_logprobs", "wanted", "rejected"))
            changes = {"tokens": tokens, "expert_loads": [], "t": measured}
        case RequestFinished():
            changes = {"message": event.message.partition(":")[0], "matched": ""}
        case PrefixHeld():
            changes = {"label": ""}
        case PrefixAdopted():
            changes = {"tokens": _unknown(event.tokens), "texts": _blanks(event.texts)}
        case BlocksReported():
            changes = {"tokens": _unknown(event.tokens)}
        case Keyframe():
            changes = {"state": _state_without_text(event.state)}
    return replace(event, **changes) if changes else event


def log_without_text(log: EventLog | ClusterLog) -> EventLog | ClusterLog:
    """Return a copy of a log without names and texts."""
    if isinstance(log, EventLog):
        return EventLog.from_events([without_text(event) for event in log])
    copy = ClusterLog()
    for event in log:
        copy.append(_cluster_event_without_text(event))
    return copy


def event_without_text(event: Event | AnyClusterEvent) -> Event | AnyClusterEvent:
    """Return the event of any log without names and texts."""
    return without_text(event) if isinstance(event, Event) else _cluster_event_without_text(event)


def _cluster_event_without_text(event: AnyClusterEvent) -> AnyClusterEvent:
    match event:
        case Of():
            return replace(event, event=without_text(event.event))
        case Routed():
            return replace(event, label="")
    return event


def _state_without_text(state: KeyframeState) -> KeyframeState:
    """Return a keyframe's state without names and texts."""
    return replace(
        state,
        source=_source_without_text(state.source),
        expert_loads=[],
        plan=_without_drafts(state.plan),
        in_flight=[(step, _without_drafts(rows)) for step, rows in state.in_flight],
        lanes=[(owner, last, "") for owner, last, _label in state.lanes],
        requests=[
            replace(
                one,
                tokens=_unknown(one.tokens),
                texts=_blanks(one.texts),
                label="",
                sampling=_without(one.sampling, _ABOUT_TEXT),
            )
            for one in state.requests
        ],
        nodes=[
            replace(one, tokens=_unknown(one.tokens), texts=_blanks(one.texts))
            for one in state.nodes
        ],
        holds=[replace(one, label="") for one in state.holds],
    )


def _without_drafts(rows: list[ScheduledRow]) -> list[ScheduledRow]:
    return [replace(row, drafts=_unknown(row.drafts)) for row in rows]


def _source_without_text(source: dict[str, Any]) -> dict[str, Any]:
    """Return the source of a foreign log, which no longer knows tokens."""
    unknown = dict.fromkeys(("token_ids", "texts"), "unknown")
    return source | {"facts": source["facts"] | unknown} if source else source


def _unknown(values: Sequence[object]) -> list[int]:
    """Return as many ids that stand for unknown tokens."""
    return [-1] * len(values)


def _blanks(values: Sequence[object]) -> list[str]:
    return [""] * len(values)


def _without(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
