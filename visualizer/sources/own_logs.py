"""Read this project's own logs: of one engine, and of a cluster."""

import re
from copy import deepcopy
from functools import cached_property
from typing import get_args

from engine.cluster.cluster_log import ClusterDecoder
from engine.cluster.events import AnyClusterEvent, Of
from engine.core.log import Event, State
from engine.core.log.log import LogDecoder
from engine.core.log.vocabulary import (
    AnyEvent,
    Keyframe,
    KeyframeState,
    RunStarted,
    StepScheduled,
    StepStarted,
)
from engine.simulation.facts import FACTS
from visualizer.sources.limits import check_settings
from visualizer.sources.mending import CONTRADICTS, Mending
from visualizer.sources.reader import Reader, Translator

_TYPE = re.compile(rb'\s*\{\s*"type"\s*:\s*"([a-z_]+)"')
_REQUEST = re.compile(rb'"request"\s*:\s*(\d{1,9})\b')
_TYPES = {str(one.__struct_config__.tag) for one in get_args(AnyEvent)}


def _type(line: bytes) -> str | None:
    match = _TYPE.match(line)
    return match[1].decode() if match else None


class OwnLog(Translator):
    """Decodes the log of one engine. It is folded, so that it can go on after a damaged line."""

    def __init__(self) -> None:
        self._decoder = LogDecoder()

    @cached_property
    def _engine(self) -> "Folded":
        return Folded(state=self.state)

    def feed(self, message: bytes) -> list[Event]:
        """Return the event in a line. Raises LogError if the line is not an event."""
        event = self._decoder.decode(message)
        _check(event)
        return self._engine.take(event)

    def skip(self, why: str, line: bytes) -> list[Event] | None:
        """See `Translator`."""
        return self._engine.gap(why + _what(line))


class OwnClusterLog(Translator):
    """Decodes the log of a cluster. Each replica's events are folded, as in `OwnLog`."""

    def __init__(self) -> None:
        self._decoder = ClusterDecoder()
        self._replicas: dict[str, Folded] = {}
        self._why = ""  # a line cannot be read

    def feed(self, message: bytes) -> list[AnyClusterEvent]:
        """Return the event in a line. Raises LogError if the line is not an event."""
        event = self._decoder.decode(message)
        if not isinstance(event, Of):
            return [event]
        _check(event.event)
        engine = self._replicas.get(event.replica)
        if engine is None or isinstance(event.event, RunStarted | Keyframe):
            if not isinstance(event.event, RunStarted | Keyframe):
                return []  # the line with the beginning of its run is damaged
            engine = self._replicas[event.replica] = Folded(event.seq)
        before: list[Event] = []
        if self._why and event.seq > engine.end + 1:
            before = engine.gap(self._why) or []
        engine.end = event.seq
        first = engine.next
        events = [*before, *engine.take(event.event)]
        engine.next += len(events)
        return [Of(event.replica, seq, one) for seq, one in enumerate(events, first)]

    def skip(self, why: str, line: bytes) -> list[AnyClusterEvent] | None:
        """See `Translator`. The next event of a replica shows whether the line was one of its."""
        if self._decoder.is_first:
            return None
        self._why = why + _what(line)
        self._decoder.has_gap = True
        return []


class Folded:
    """Folds the events of one engine, unless `state` is that of what folds each of them at once.

    end, next  of a cluster's replica: the number of its last event, and the one that its next event
               gets; they differ where events were added or left out
    """

    def __init__(self, first: int = 0, state: State | None = None) -> None:
        self.end, self.next = first - 1, first
        self._is_own = state is None
        self._state: State | None = State() if state is None else state
        self._is_scheduled = True
        self._mending: Mending | None = None

    def take(self, event: Event) -> list[Event]:
        """Return the event, or after a gap what fits."""
        if self._mending is not None:
            return self._mending.take(event)
        if self._state is not None:
            try:
                if self._is_own:
                    self._state.apply(event)
            except CONTRADICTS:  # without a damaged line: whatever folds the log names the event
                self._state = None
            if isinstance(event, StepStarted | StepScheduled):
                self._is_scheduled = isinstance(event, StepScheduled)
        return [event]

    def gap(self, why: str) -> list[Event] | None:
        """Return the event that says that a line is missing.

        None before the first event, and if the log contradicts itself.
        """
        if self._state is None or self._state.seq < 0:
            return None
        if self._mending is None:
            if not self._is_own:
                self._state = deepcopy(self._state)
            self._mending = Mending(self._state, is_scheduled=self._is_scheduled)
        return self._mending.gap(why)


def _check(event: object) -> None:
    match event:
        case RunStarted(settings=settings) | Keyframe(state=KeyframeState(settings=settings)):
            check_settings(settings)


def _what(line: bytes) -> str:
    """Return what can be seen of a damaged line: ". It began with admitted of request 7"."""
    if (kind := _type(line)) is None:
        return ""
    request = _REQUEST.search(line)
    return f". It began with {kind}" + (f" of request {int(request[1])}" if request else "")


ENGINE_LOG = Reader(
    name="underglass",
    title="Underglass",
    facts=dict.fromkeys(FACTS, "recorded"),
    recognizes=lambda line: _type(line) in _TYPES,
    translator=OwnLog,
)
CLUSTER_LOG = Reader(
    name="underglass-cluster",
    title="Underglass, a cluster",
    facts=dict.fromkeys(FACTS, "recorded"),
    recognizes=lambda line: _type(line) == "cluster_started",
    translator=OwnClusterLog,
)
