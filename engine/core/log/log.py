"""The event log: append, read, save, load.

On disk a log is JSON Lines, one event per line: any tool can read it, and a log that is cut off while
being written loses only its last line. In memory it is a list. A server that runs for weeks keeps a
window: when the window is full, the oldest events are folded into a keyframe.

Rows, tables and explanations are computed from a log by others; see `visualizer/reading`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar, overload

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.fold import State

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[v.Event] = msgspec.json.Decoder(v.AnyEvent)


class LogError(ValueError):
    """A log cannot be read, or lacks what was asked for. The message names the line or the key."""


# What msgspec raises for a line that is not an event. DecodeError includes ValidationError.
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NO_BEGINNING = "a log must begin with run_started or keyframe; its beginning is missing"
Kind = TypeVar("Kind", bound=v.Event)
Line = TypeVar("Line")


class JsonLines:
    """A log as JSON Lines: what the logs of an engine and of a cluster have in common."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def deterministic(self) -> list[bytes]:
        """Return the lines without measured values. Two runs of one workload give the same lines."""
        return [_encoder.encode(without_measured(event)) for event in self]

    def to_bytes(self) -> bytes:
        """Return the log as JSON Lines."""
        return b"".join(_encoder.encode(event) + b"\n" for event in self)

    def save(self, path: str | Path) -> None:
        """Write the log as JSON Lines, without an index, which takes 25 times as long."""
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a saved log. Raises LogError for a line that is not an event."""
        return cls.from_bytes(Path(path).read_bytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read JSON Lines. A last line without a line break was cut off and is dropped."""
        raise NotImplementedError

    @staticmethod
    def _decoded(data: bytes, decode: Callable[[bytes], Line], what: str) -> list[Line]:
        """Decode the whole lines of a log. Raises LogError, which names the line."""
        lines = list[Line]()
        whole, _, _torn = data.rpartition(b"\n")
        for number, line in enumerate(whole.split(b"\n") if whole else [], start=1):
            try:
                lines.append(decode(line))
            except LogError as error:
                raise LogError(f"line {number}: {error}") from error.__cause__
        if not lines:
            raise LogError(f"the log has no complete line: it is empty, or not {what} log")
        return lines


class EventLog(JsonLines):
    """Events in order. `seq` numbers them from the start of the run, even in a window.

    `window` is the maximum number of events to keep; None keeps all. A window that does not cover
    the whole run starts with a `keyframe`, which has the number of the last event folded into it.
    """

    def __init__(self, window: int | None = None) -> None:
        if window is not None and window < 2:
            raise ValueError(f"window must be at least 2 or None, got {window}")
        self._window = window
        self._events: list[v.Event] = []
        self._first = 0  # seq of _events[0]
        self._folded: State | None = None  # the state after the dropped events

    def append(self, event: v.Event) -> None:
        """Add an event. When the window is full, its older half becomes a keyframe.

        That raises LogError if an event does not fit what came before it.
        """
        self._events.append(event)
        if self._window is not None and len(self._events) > self._window:
            self._fold_oldest(len(self._events) // 2 + 1)

    @property
    def next_seq(self) -> int:
        """The number of the next event."""
        return self._first + len(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[v.Event]:
        return iter(self._events)

    @overload
    def __getitem__(self, index: int) -> v.Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[v.Event]: ...
    def __getitem__(self, index: int | slice) -> v.Event | list[v.Event]:
        """Return events by their index in the window."""
        return self._events[index]

    def since(self, seq: int) -> list[v.Event]:
        """Return events with number `seq` and later, as far as the window still has them."""
        return self._events[max(0, seq - self._first) :]

    def of(self, *kinds: type[Kind]) -> list[Kind]:
        """Return the events of some kinds, in order."""
        return list(self.each(*kinds))

    def each(self, *kinds: type[Kind]) -> Iterator[Kind]:
        """Iterate over the events of some kinds, which saves the memory of a list."""
        return (event for event in self._events if isinstance(event, kinds))

    def state(self, seq: int | None = None) -> State:
        """Return the folded state after event `seq`, or after the last one.

        Raises LogError for an event that does not fit what came before it.
        """
        end = self.next_seq if seq is None else seq + 1
        state = State()
        for event in self._events[: end - self._first]:
            apply(state, event)
        return state

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """See `JsonLines`."""
        return cls.from_events(cls._decoded(data, LogDecoder().decode, "an event"))

    @classmethod
    def from_events(cls, events: list[v.Event], window: int | None = None) -> Self:
        """Return a log of these events. Raises LogError unless they begin a run or a window."""
        log, first = cls(window), events[0]
        if isinstance(first, v.Keyframe):
            log._first = first.seq
        elif not isinstance(first, v.RunStarted):
            raise LogError(f"line 1: {_NO_BEGINNING}")
        log._events = events
        return log

    def __repr__(self) -> str:
        return f"EventLog({len(self)} events)"

    def _fold_oldest(self, count: int) -> None:
        state = self._folded or State()
        for event in self._events[:count]:
            if not isinstance(event, v.Keyframe) or self._folded is None:
                apply(state, event)
        self._folded = state
        self._events[:count] = [state.keyframe()]
        self._first = state.seq


def without_measured(event: Any) -> Any:
    """Return an event, or a cluster's event about a replica's event, without measured values."""
    if hasattr(event, "event"):
        return msgspec.structs.replace(event, event=without_measured(event.event))
    return msgspec.structs.replace(event, t={}) if hasattr(event, "t") else event


def apply(state: State, event: v.Event) -> None:
    """Apply an event that may come from a damaged log. Raises LogError if it does not fit."""
    try:
        state.apply(event)
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        kind = event.__struct_config__.tag
        raise LogError(f"event {state.seq}: {kind} does not fit what came before") from error


class LogDecoder:
    """Decodes the lines of one log, in order."""

    def __init__(self) -> None:
        self._is_first = True

    def decode(self, line: bytes) -> v.Event:
        """Return the event of a line. Raises LogError, without the line's number."""
        if self._is_first:
            _check_first(line)
        try:
            event = _decoder.decode(line)
        except NOT_JSON as error:
            raise LogError(str(error)) from error
        if self._is_first and not isinstance(event, v.RunStarted | v.Keyframe):
            raise LogError(_NO_BEGINNING)
        self._is_first = False
        return event


class _Start(msgspec.Struct):
    """The part of a log's first line, run_started or keyframe, that gives the schema."""

    schema: int = v.SCHEMA_VERSION
    state: "_Start | None" = None


def check_schema(what: str, schema: int, readable: int) -> None:
    """Raise LogError for a log or keyframe with another schema version than the readable one."""
    if schema != readable:
        raise LogError(
            f"the {what} has schema version {schema}, this version of Underglass reads {readable}: "
            "open it with the version that wrote it"
        )


def _check_first(line: bytes) -> None:
    """Raise LogError if a log that begins with this line has another schema."""
    try:
        start = msgspec.json.decode(line, type=_Start)
    except NOT_JSON as error:
        raise LogError(str(error)) from error
    if start.state:
        check_schema("log", start.state.schema, v.KEYFRAME_SCHEMA_VERSION)
    else:
        check_schema("log", start.schema, v.SCHEMA_VERSION)
