"""The event log: append, read, save, load.

On disk a log is JSON Lines, one event a line, so that any tool can read it and a log that was cut
off while it was written loses its last line only. In memory it is a list. A server that runs for
weeks keeps a window: when the window is full, the oldest events are folded into a keyframe.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, overload

import msgspec

from engine.events.fold import State
from engine.events.vocabulary import SCHEMA_VERSION, AnyEvent, Event, Keyframe, RunStarted

if TYPE_CHECKING:
    import pandas as pd

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyEvent)


class LogError(ValueError):
    """A log cannot be read. The message says which line and why."""


Kind = TypeVar("Kind", bound=Event)


class EventLog:
    """Events in order. `seq` numbers them from the start of the run, also in a window.

    `window` bounds how many events are kept; None keeps all of them. A log whose beginning was
    dropped starts with a `keyframe`, whose number is that of the last event folded into it.
    """

    def __init__(self, window: int | None = None) -> None:
        if window is not None and window < 2:
            raise ValueError(f"window must be at least 2 events or None, got {window}")
        self._window = window
        self._events: list[Event] = []
        self._first = 0  # seq of _events[0]
        self._dropped: State | None = None  # what was dropped, folded

    def append(self, event: Event) -> None:
        """Add an event. When the window is full, its older half becomes a keyframe."""
        self._events.append(event)
        if self._window is not None and len(self._events) > self._window:
            self._drop(len(self._events) // 2 + 1)

    @property
    def next_seq(self) -> int:
        """The number that the next event will get."""
        return self._first + len(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        """Events by their place in what is kept."""
        return self._events[index]

    def since(self, seq: int) -> list[Event]:
        """Events with number `seq` and later. Numbers that were dropped give what is left."""
        return self._events[max(0, seq - self._first) :]

    def of(self, *kinds: type[Kind]) -> list[Kind]:
        """The events of some kinds, in order."""
        return [event for event in self._events if isinstance(event, kinds)]

    def state(self, seq: int | None = None) -> State:
        """The folded state after event `seq`, or after the last one."""
        end = self.next_seq if seq is None else seq + 1
        state = State()
        for event in self._events[: end - self._first]:
            state.apply(event)
        return state

    def deterministic(self) -> list[bytes]:
        """The log's lines without what was measured: equal for two runs of one workload."""
        return [_encoder.encode(_without_measured(event)) for event in self._events]

    def to_bytes(self) -> bytes:
        """The log as JSON Lines."""
        return b"".join(_encoder.encode(event) + b"\n" for event in self._events)

    def save(self, path: str | Path) -> None:
        """Write the log as JSON Lines."""
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> "EventLog":
        """Read a saved log. Raises LogError for a line that is not an event of this schema."""
        return cls.from_bytes(Path(path).read_bytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> "EventLog":
        """Read JSON Lines. A torn last line, without its line break, is dropped."""
        log = cls()
        whole, _, _torn = data.rpartition(b"\n")
        for number, line in enumerate(whole.split(b"\n") if whole else [], start=1):
            log.append(_decode(line, number))
        if not log._events:
            raise LogError("the log has no whole line: nothing was recorded, or it is not a log")
        first = log[0]
        if isinstance(first, Keyframe):
            log._first = first.seq
        elif not isinstance(first, RunStarted):
            raise LogError(
                "line 1: a log begins with run_started or keyframe; its start is missing"
            )
        return log

    # Frames for analysis; pandas is imported when one is asked for.

    @property
    def requests(self) -> "pd.DataFrame":
        """One row per request; see `frames.requests_frame` for columns and units."""
        from engine.events.frames import requests_frame

        return requests_frame(self)

    @property
    def steps(self) -> "pd.DataFrame":
        """One row per step; see `frames.steps_frame` for columns and units."""
        from engine.events.frames import steps_frame

        return steps_frame(self)

    @property
    def tokens(self) -> "pd.DataFrame":
        """One row per output token; see `frames.tokens_frame` for columns and units."""
        from engine.events.frames import tokens_frame

        return tokens_frame(self)

    def __repr__(self) -> str:
        return f"EventLog({len(self)} events)"

    def _drop(self, count: int) -> None:
        state = self._dropped or State()
        for event in self._events[:count]:
            if not isinstance(event, Keyframe) or self._dropped is None:
                state.apply(event)
        self._dropped = state
        self._events[:count] = [state.keyframe()]
        self._first = state.seq


def _without_measured(event: Event) -> Event:
    return msgspec.structs.replace(event, t={}) if hasattr(event, "t") else event


def _decode(line: bytes, number: int) -> Event:
    try:
        event: Event = _decoder.decode(line)
    except msgspec.DecodeError as error:  # ValidationError is one, too
        raise LogError(f"line {number}: {error}") from error
    schema = SCHEMA_VERSION
    if isinstance(event, RunStarted):
        schema = event.schema
    elif isinstance(event, Keyframe):
        schema = event.state["schema"]
    if schema != SCHEMA_VERSION:
        raise LogError(
            f"line {number}: this log has schema version {schema}, this program reads "
            f"{SCHEMA_VERSION}: open it with the version of Underglass that wrote it"
        )
    return event
