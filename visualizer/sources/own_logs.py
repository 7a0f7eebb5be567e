"""Read this project's own logs: of one engine, and of a cluster."""

import re
from typing import get_args

from engine.cluster.cluster_log import ClusterDecoder
from engine.cluster.events import AnyClusterEvent, Of
from engine.core.log import Event
from engine.core.log.log import LogDecoder
from engine.core.log.vocabulary import AnyEvent, Keyframe, KeyframeState, RunStarted
from engine.simulation.facts import FACTS
from visualizer.sources.limits import check_settings
from visualizer.sources.reader import Reader

_TYPE = re.compile(rb'\s*\{\s*"type"\s*:\s*"([a-z_]+)"')
_TYPES = {str(one.__struct_config__.tag) for one in get_args(AnyEvent)}


def _type(line: bytes) -> str | None:
    match = _TYPE.match(line)
    return match[1].decode() if match else None


def _check(event: Event) -> None:
    match event:
        case RunStarted(settings=settings) | Keyframe(state=KeyframeState(settings=settings)):
            check_settings(settings)


class EngineLog:
    """Decodes the log of one engine."""

    def __init__(self) -> None:
        self._decoder = LogDecoder()

    def feed(self, message: bytes) -> list[Event]:
        """Return the event in a line. Raises LogError if the line is not an event."""
        event = self._decoder.decode(message)
        _check(event)
        return [event]

    def end(self) -> list[Event]:
        """Return no events: no line is held back."""
        return []


class GatewayLog:
    """Decodes the log of a cluster."""

    def __init__(self) -> None:
        self._decoder = ClusterDecoder()

    def feed(self, message: bytes) -> list[AnyClusterEvent]:
        """Return the event in a line. Raises LogError if the line is not an event of a cluster."""
        event = self._decoder.decode(message)
        if isinstance(event, Of):
            _check(event.event)
        return [event]

    def end(self) -> list[AnyClusterEvent]:
        """Return no events: no line is held back."""
        return []


ENGINE_LOG = Reader(
    name="underglass",
    title="Underglass",
    facts=dict.fromkeys(FACTS, "recorded"),
    recognizes=lambda line: _type(line) in _TYPES,
    translator=EngineLog,
)
CLUSTER_LOG = Reader(
    name="underglass-cluster",
    title="Underglass, a cluster",
    facts=dict.fromkeys(FACTS, "recorded"),
    recognizes=lambda line: _type(line) == "cluster_started",
    translator=GatewayLog,
)
