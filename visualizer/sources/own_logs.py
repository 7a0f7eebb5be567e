"""Read this project's own logs: of one engine, and of a cluster."""

import re
from typing import get_args

from engine.cluster.cluster_log import ClusterDecoder
from engine.cluster.events import Of
from engine.core.log.log import LogDecoder
from engine.core.log.vocabulary import AnyEvent, Keyframe, KeyframeState, RunStarted
from engine.simulation.facts import FACTS
from visualizer.sources.limits import check_settings
from visualizer.sources.reader import LogEvent, Reader, Translator

_TYPE = re.compile(rb'\s*\{\s*"type"\s*:\s*"([a-z_]+)"')
_TYPES = {str(one.__struct_config__.tag) for one in get_args(AnyEvent)}


def _type(line: bytes) -> str | None:
    match = _TYPE.match(line)
    return match[1].decode() if match else None


class OwnLog(Translator):
    """Decodes the log of one engine, or of a cluster."""

    def __init__(self, decoder: LogDecoder | ClusterDecoder) -> None:
        self._decoder = decoder

    def feed(self, message: bytes) -> list[LogEvent]:
        """Return the event in a line. Raises LogError if the line is not an event."""
        event: LogEvent = self._decoder.decode(message)
        match event.event if isinstance(event, Of) else event:
            case RunStarted(settings=settings) | Keyframe(state=KeyframeState(settings=settings)):
                check_settings(settings)
        return [event]


ENGINE_LOG = Reader(
    name="underglass",
    title="Underglass",
    facts=dict.fromkeys(FACTS, "recorded"),
    recognizes=lambda line: _type(line) in _TYPES,
    translator=lambda: OwnLog(LogDecoder()),
)
CLUSTER_LOG = Reader(
    name="underglass-cluster",
    title="Underglass, a cluster",
    facts=dict.fromkeys(FACTS, "recorded"),
    recognizes=lambda line: _type(line) == "cluster_started",
    translator=lambda: OwnLog(ClusterDecoder()),
)
