"""`--trace-text off`: the event log without names and texts.

Lengths, decisions, blocks and times stay, so every picture except the words is the same. Left out, or
replaced by as many zeros or empty pieces:

    the label of a request and of a held prefix: the pictures call it r1, r2, ...
    ids and texts of prompts, outputs and drafts
    sampling parameters that name text or tokens: stop, stop_token_ids, logit_bias
    the most likely other tokens, the stop string that matched, and the details of an error

Such a log cannot be replayed: with all ids equal, every prompt would look like a prefix of every
other. `Workload.from_log` rejects it.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from engine.events.vocabulary import (
    Event,
    PrefixHeld,
    RequestArrived,
    RequestFinished,
    RunStarted,
    StepFinished,
    StepScheduled,
)

_ABOUT_TEXT = ("stop", "stop_token_ids", "logit_bias")


def without_text(event: Event) -> Event:
    """Return the event without names and texts."""
    changes: dict[str, Any] = {}
    match event:
        case RunStarted():
            changes = {"tokenizer": event.tokenizer | {"trace_text": "off"}}
        case RequestArrived():
            changes = {
                "prompt": _zeros(event.prompt),
                "texts": _blanks(event.texts),
                "label": "",
                "sampling": _without(event.sampling, _ABOUT_TEXT),
            }
        case StepScheduled():
            rows = [replace(row, drafts=_zeros(row.drafts)) for row in event.rows]
            changes = {"rows": rows}
        case StepFinished():
            tokens = [
                replace(row, ids=_zeros(row.ids), texts=_blanks(row.texts)) for row in event.tokens
            ]
            changes = {"tokens": tokens, "t": _without(event.t, ("top_logprobs",))}
        case RequestFinished():
            changes = {"message": event.message.partition(":")[0], "matched": ""}
        case PrefixHeld():
            changes = {"label": ""}
    return replace(event, **changes) if changes else event


def _zeros(values: Sequence[object]) -> list[int]:
    return [0] * len(values)


def _blanks(values: Sequence[object]) -> list[str]:
    return [""] * len(values)


def _without(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
