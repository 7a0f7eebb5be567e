"""The event log: append, read, save, load.

On disk a log is JSON Lines, one event per line: any tool can read it, and a log that is cut off while
being written loses only its last line. In memory it is a list. A server that runs for weeks keeps a
window: when the window is full, the oldest events are folded into a keyframe.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, overload

import msgspec

from engine.events.fold import State
from engine.events.frames import frame
from engine.events.rows import (
    OutputTokenRow,
    RequestRow,
    StepRow,
    request_rows,
    step_rows,
    token_rows,
)
from engine.events.upgrade import UPGRADES, schema_of, upgrade
from engine.events.vocabulary import SCHEMA_VERSION, AnyEvent, Event, Keyframe, RunStarted

if TYPE_CHECKING:
    import pandas as pd

    from engine.events.waterfall import Waterfall

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyEvent)


class LogError(ValueError):
    """A log cannot be read, or lacks what was asked for. The message names the line or the key."""


Kind = TypeVar("Kind", bound=Event)


class EventLog:
    """Events in order. `seq` numbers them from the start of the run, even in a window.

    `window` is the maximum number of events to keep; None keeps all. A window that does not cover
    the whole run starts with a `keyframe`, which has the number of the last event folded into it.
    """

    def __init__(self, window: int | None = None) -> None:
        if window is not None and window < 2:
            raise ValueError(f"window must be at least 2 or None, got {window}")
        self._window = window
        self._events: list[Event] = []
        self._first = 0  # seq of _events[0]
        self._folded: State | None = None  # the state after the dropped events

    def append(self, event: Event) -> None:
        """Add an event. When the window is full, its older half becomes a keyframe."""
        self._events.append(event)
        if self._window is not None and len(self._events) > self._window:
            self._fold_oldest(len(self._events) // 2 + 1)

    @property
    def next_seq(self) -> int:
        """The number of the next event."""
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
        """Return events by their index in the window."""
        return self._events[index]

    def since(self, seq: int) -> list[Event]:
        """Return events with number `seq` and later, as far as the window still has them."""
        return self._events[max(0, seq - self._first) :]

    def of(self, *kinds: type[Kind]) -> list[Kind]:
        """Return the events of some kinds, in order."""
        return [event for event in self._events if isinstance(event, kinds)]

    def state(self, seq: int | None = None) -> State:
        """Return the folded state after event `seq`, or after the last one."""
        end = self.next_seq if seq is None else seq + 1
        state = State()
        for event in self._events[: end - self._first]:
            state.apply(event)
        return state

    def deterministic(self) -> list[bytes]:
        """Return the lines without measured values. Two runs of one workload give the same lines."""
        return [_encoder.encode(_without_measured(event)) for event in self._events]

    def to_bytes(self) -> bytes:
        """Return the log as JSON Lines."""
        return b"".join(_encoder.encode(event) + b"\n" for event in self._events)

    def save(self, path: str | Path) -> None:
        """Write the log as JSON Lines."""
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> "EventLog":
        """Read a saved log. Raises LogError for a line that is not an event."""
        return cls.from_bytes(Path(path).read_bytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> "EventLog":
        """Read JSON Lines. A last line without a line break was cut off and is dropped."""
        log = cls()
        whole, _, _torn = data.rpartition(b"\n")
        for number, line in enumerate(_upgraded(whole.split(b"\n") if whole else []), start=1):
            try:
                log.append(_decoder.decode(line))
            except msgspec.DecodeError as error:  # includes ValidationError
                raise LogError(f"line {number}: {error}") from error
        if not log._events:
            raise LogError("the log has no complete line: it is empty, or not an event log")
        first = log[0]
        if isinstance(first, Keyframe):
            log._first = first.seq
        elif not isinstance(first, RunStarted):
            raise LogError(
                "line 1: a log must begin with run_started or keyframe; its beginning is missing"
            )
        return log

    # One record per request, step and token, computed on access; see `engine.events.rows`.

    @property
    def request_rows(self) -> list[RequestRow]:
        """One row per request and sample, in order of appearance."""
        return request_rows(self)

    @property
    def step_rows(self) -> list[StepRow]:
        """One row per step, in order."""
        return step_rows(self)

    @property
    def token_rows(self) -> list[OutputTokenRow]:
        """One row per output token, in order of appearance."""
        return token_rows(self)

    def request(self, key: int | str) -> RequestRow:
        """Return the row of a request, by its id or its label; of its samples, the first.

        Raises LogError if no request has this id or label, or if several requests have the label.
        """
        rows = self.request_rows
        found = [row for row in rows if key in (row.request, row.label)]
        if not found:
            known = ", ".join(f"{row.request} ({row.label})" for row in rows) or "none"
            raise LogError(f"request: {key!r} is not in this log; its requests are {known}")
        firsts = {row.root: row for row in reversed(found)}
        if len(firsts) > 1:
            ids = ", ".join(str(row.request) for row in reversed(firsts.values()))
            raise LogError(f"request: several are labelled {key!r}; use one of their ids: {ids}")
        return found[0]

    def step(self, number: int) -> StepRow:
        """Return the row of a step. Raises LogError if the log does not have it."""
        rows = {row.step: row for row in self.step_rows}
        if number not in rows:
            known = f"{min(rows)} to {max(rows)}" if rows else "none"
            raise LogError(f"step: {number!r} is not in this log; its steps are {known}")
        return rows[number]

    # The same rows as pandas frames, with the same columns in the same order.

    @property
    def requests(self) -> "pd.DataFrame":
        """`request_rows` as a frame, indexed by id."""
        return frame(RequestRow, self.request_rows, "request")

    @property
    def steps(self) -> "pd.DataFrame":
        """`step_rows` as a frame, indexed by step number."""
        return frame(StepRow, self.step_rows, "step")

    @property
    def tokens(self) -> "pd.DataFrame":
        """`token_rows` as a frame."""
        return frame(OutputTokenRow, self.token_rows)

    @property
    def waterfall(self) -> "Waterfall":
        """Where each request's time went; see `engine.events.waterfall`."""
        from engine.events.waterfall import Waterfall

        return Waterfall(self)

    def __repr__(self) -> str:
        return f"EventLog({len(self)} events)"

    def _fold_oldest(self, count: int) -> None:
        state = self._folded or State()
        for event in self._events[:count]:
            if not isinstance(event, Keyframe) or self._folded is None:
                state.apply(event)
        self._folded = state
        self._events[:count] = [state.keyframe()]
        self._first = state.seq


def _without_measured(event: Event) -> Event:
    return msgspec.structs.replace(event, t={}) if hasattr(event, "t") else event


def _upgraded(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the lines in the current schema. Raises LogError if there is no upgrade."""
    try:
        schema = schema_of(lines[0]) if lines else SCHEMA_VERSION
    except msgspec.DecodeError as error:
        raise LogError(f"line 1: {error}") from error
    if schema != SCHEMA_VERSION and schema not in UPGRADES:
        raise LogError(
            f"line 1: the log has schema version {schema}, this version of Underglass reads up to "
            f"{SCHEMA_VERSION}: open it with the version that wrote it"
        )
    for number, line in enumerate(lines, start=1):
        try:
            yield line if schema == SCHEMA_VERSION else upgrade(line, schema)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise LogError(f"line {number}: not an event of schema {schema}: {error!r}") from error
