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

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from engine.cluster.cluster_log import ClusterLog
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import RequestFinished, RunStarted
from visualizer.indexed.indexed_log import Indexed
from visualizer.indexed.temporary import indexed_temporarily

_ABOUT_TEXT = (
    *("stop", "stop_token_ids", "logit_bias", "bad_words", "allowed_token_ids", "structured"),
    *("top_logprobs", "wanted", "rejected"),
)
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def without_text(event: _Struct) -> _Struct:
    """Return an event of any log, or a part of one, without names and texts."""
    changes = {name: change(getattr(event, name)) for name, change in _changes(type(event)).items()}
    match event:
        case RunStarted():
            changes["tokenizer"] = event.tokenizer | {"trace_text": "off"}
        case RequestFinished():
            changes["message"] = event.message.partition(":")[0]
    return replace(event, **changes) if changes else event


def log_without_text(log: EventLog | ClusterLog) -> EventLog | ClusterLog:
    """Return a copy of a log without names and texts.

    The copy of a log that is read from its index is read from an index, too, which is removed when the
    process ends. Raises OSError if that cannot be written.
    """
    if isinstance(log, Indexed):
        return indexed_temporarily(map(without_text, log), log.index.directory.damage)
    if isinstance(log, EventLog):
        return EventLog.from_events([without_text(event) for event in log])
    copy = ClusterLog()
    for event in log:
        copy.append(without_text(event))
    return copy


def _hidden(value: Any) -> Any:
    """Return a name or a list of tokens or texts, with an unknown id or an empty text for each."""
    if isinstance(value, list) and value and isinstance(value[0], int | str):
        return [-1 if isinstance(value[0], int) else ""] * len(value)
    return "" if isinstance(value, str) else _inside(value)


def _inside(value: Any) -> Any:
    """Return a value whose structs are without text."""
    if isinstance(value, msgspec.Struct):
        return without_text(value)
    return type(value)(map(_inside, value)) if isinstance(value, list | tuple) else value


def _without(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _ABOUT_TEXT}


def _source(source: Any) -> Any:
    """Return the source of a foreign log, which no longer knows tokens; a replica is no such source."""
    if not isinstance(source, dict) or not source:
        return source
    return source | {"facts": source["facts"] | dict.fromkeys(("token_ids", "texts"), "unknown")}


# What becomes of a field with this name, whichever struct has it.
_CHANGES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("label", "matched", "prompt", "output", "tokens"), _hidden),
    **dict.fromkeys(("texts", "ids", "drafts"), _hidden),
    **dict.fromkeys(("event", "state", "rows", "plan", "in_flight"), _inside),
    **dict.fromkeys(("requests", "nodes", "holds"), _inside),
    **dict.fromkeys(("sampling", "t"), _without),
    "expert_loads": lambda _: [],
    "lanes": lambda lanes: [(owner, last, "") for owner, last, _label in lanes],
    "source": _source,
}


@cache
def _changes(kind: type[msgspec.Struct]) -> dict[str, Callable[[Any], Any]]:
    return {name: _CHANGES[name] for name in kind.__struct_fields__ if name in _CHANGES}
