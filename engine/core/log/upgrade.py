"""Read logs of older schemas: one function for each change of the vocabulary.

To change an event's fields or their meaning, raise `SCHEMA_VERSION`, add a function that upgrades a
line of the old schema, and keep a log of the old schema in `tests/fixtures/logs`.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from engine.core.log.vocabulary import SCHEMA_VERSION

Line = dict[str, Any]


def _name_the_prefix_cache(event: Line) -> Line:
    """Upgrade from schema 1, whose setting `prefix_cache` was True or False.

    It had no hash cache, so its keyframes have neither an eviction queue nor copies of blocks. A match
    that ended inside an edge did not count as an access to the rest of the edge. A step finished
    before the next one started, so `step_finished` does not name it.
    """
    if event["type"] == "radix_split":
        event["touched"] = False
    state = event.get("state", {})
    for settings in (event.get("settings"), state.get("settings")):
        if settings is not None:
            settings["prefix_cache"] = "radix" if settings["prefix_cache"] else "off"
            settings["admission"] = "first_chunk"
            settings["async_scheduling"] = False
    if state:
        state["queue"] = []
        for node in state["nodes"]:
            node["copies"] = []
    return event


# old schema -> upgrade of a line to the next
UPGRADES: dict[int, Callable[[Line], Line]] = {1: _name_the_prefix_cache}


class _Start(msgspec.Struct):
    """The part of a log's first line, run_started or keyframe, that gives the schema."""

    schema: int = SCHEMA_VERSION
    state: "_Start | None" = None


def schema_of(line: bytes) -> int:
    """Return the schema of a log from its first line."""
    start = msgspec.json.decode(line, type=_Start)
    return (start.state or start).schema


def upgrade(line: bytes, schema: int, current: int = SCHEMA_VERSION) -> bytes:
    """Return a line of an older schema in the current one. Raises KeyError for an unknown schema."""
    event: Line = msgspec.json.decode(line)
    for version in range(schema, current):
        event = UPGRADES[version](event)
    for place in (event, event.get("state", {})):
        if "schema" in place:
            place["schema"] = current
    return msgspec.json.encode(event)
