"""The event log: append, read, save, load.

On disk a log is JSON Lines, one event per line: any tool can read it, and a log that is cut off while
being written loses only its last line. In memory it is a list. A server that runs for weeks keeps a
window: when the window is full, the oldest events are folded into a keyframe.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, overload

import msgspec

from engine.core.log.expert_loads import ExpertLoads, unpacked
from engine.core.log.fold import State
from engine.core.log.upgrade import UPGRADES, schema_of, upgrade
from engine.core.log.vocabulary import (
    SCHEMA_VERSION,
    AnyEvent,
    Event,
    Keyframe,
    RunStarted,
    StepFinished,
)
from visualizer.reading.frames import frame
from visualizer.reading.knowledge import LogKnowledge
from visualizer.reading.rows import (
    OutputTokenRow,
    RequestRow,
    StepRow,
    request_rows,
    step_rows,
    token_rows,
)
from visualizer.reading.rows.unknown import (
    REQUEST_FACTS,
    STEP_FACTS,
    TOKEN_FACTS,
    remove_unknown,
    source_of,
)

if TYPE_CHECKING:
    import pandas as pd

    from visualizer.reading.waterfall import RequestTime, Waterfall
    from visualizer.reading.why.miss import WhyMissed
    from visualizer.reading.why.stuck import Stuck

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(AnyEvent)


class LogError(ValueError):
    """A log cannot be read, or lacks what was asked for. The message names the line or the key."""


# What msgspec raises for a line that is not an event. DecodeError includes ValidationError.
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NO_BEGINNING = "a log must begin with run_started or keyframe; its beginning is missing"
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
        """Return the folded state after event `seq`, or after the last one.

        Raises LogError for an event that does not fit what came before it.
        """
        end = self.next_seq if seq is None else seq + 1
        state = State()
        for event in self._events[: end - self._first]:
            apply(state, event)
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
        events, decoder = list[Event](), LogDecoder()
        whole, _, _torn = data.rpartition(b"\n")
        for number, line in enumerate(whole.split(b"\n") if whole else [], start=1):
            try:
                events.append(decoder.decode(line))
            except LogError as error:
                raise LogError(f"line {number}: {error}") from error.__cause__
        if not events:
            raise LogError("the log has no complete line: it is empty, or not an event log")
        return cls.from_events(events)

    @classmethod
    def from_events(cls, events: list[Event], window: int | None = None) -> "EventLog":
        """Return a log of these events. Raises LogError unless they begin a run or a window."""
        log, first = cls(window), events[0]
        if isinstance(first, Keyframe):
            log._first = first.seq
        elif not isinstance(first, RunStarted):
            raise LogError(f"line 1: {_NO_BEGINNING}")
        log._events = events
        return log

    @property
    def knowledge(self) -> LogKnowledge:
        """Which facts the log recorded, which are inferred, and which are unknown."""
        return LogKnowledge(source_of(self._events))

    # One record per request, step and token, computed on access; see `visualizer.reading.rows`. What the
    # source of a foreign log does not know is None.

    @property
    def request_rows(self) -> list[RequestRow]:
        """One row per request and sample, in order of appearance."""
        rows = request_rows(self)
        remove_unknown(rows, REQUEST_FACTS, source_of(self._events))
        return rows

    @property
    def step_rows(self) -> list[StepRow]:
        """One row per step, in order."""
        rows = step_rows(self)
        remove_unknown(rows, STEP_FACTS, source_of(self._events))
        return rows

    @property
    def token_rows(self) -> list[OutputTokenRow]:
        """One row per output token, in order of appearance."""
        rows = token_rows(self)
        remove_unknown(rows, TOKEN_FACTS, source_of(self._events))
        return rows

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

    def expert_loads(self, step: int | None = None) -> ExpertLoads:
        """Return how many tokens each expert of each layer computed in a step; None: in the whole run.

        Raises LogError if the log has none: the model is dense, the step failed or is not here.
        """
        if step is None:
            loads = self.state().expert_loads
        else:
            finished = [event for event in self.of(StepFinished) if event.step == step]
            loads = [unpacked(layer) for event in finished for layer in event.expert_loads]
        if not any(loads):
            what = "this log has" if step is None else f"step {step!r} of this log has"
            raise LogError(
                f"expert_loads: {what} none; only steps of a model with a mixture of experts have some"
            )
        return ExpertLoads(loads)

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
        """Where each request's time went; see `visualizer.reading.waterfall`."""
        from visualizer.reading.waterfall import Waterfall

        return Waterfall(self)

    # Answers about one request or one step; see `visualizer.reading.why`.

    def why_slow(self, request: int | str) -> "RequestTime":
        """Return where the time of a request went: its `parts`, in words and as a bar.

        `request` is an id or a label. Raises WhyError for a request that is not in the log.
        """
        from visualizer.reading.why.find import request_named

        waterfall = self.waterfall
        return waterfall[request_named(waterfall.names, request)]

    def why_missed(self, request: int | str) -> "WhyMissed":
        """Return why no more of a request's prompt was cached when it was admitted.

        `request` is an id or a label. Raises WhyError for a request that is not in the log.
        """
        from visualizer.reading.why.missed import why_missed

        return why_missed(self, request)

    def stuck(self, step: int | None = None) -> "Stuck":
        """Return the queue after a step was scheduled, with ages and reasons; None: the last step.

        Raises WhyError for a step that is not in the log.
        """
        from visualizer.reading.why.stuck import stuck

        return stuck(self, step)

    def __repr__(self) -> str:
        return f"EventLog({len(self)} events)"

    def _fold_oldest(self, count: int) -> None:
        state = self._folded or State()
        for event in self._events[:count]:
            if not isinstance(event, Keyframe) or self._folded is None:
                apply(state, event)
        self._folded = state
        self._events[:count] = [state.keyframe()]
        self._first = state.seq


def _without_measured(event: Event) -> Event:
    return msgspec.structs.replace(event, t={}) if hasattr(event, "t") else event


def apply(state: State, event: Event) -> None:
    """Apply an event that may come from a damaged log. Raises LogError if it does not fit."""
    try:
        state.apply(event)
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        kind = event.__struct_config__.tag
        raise LogError(f"event {state.seq}: {kind} does not fit what came before") from error


class LogDecoder:
    """Decodes the lines of one log, in order. Lines of an older schema are upgraded."""

    def __init__(self) -> None:
        self._schema: int | None = None  # before the first line

    def decode(self, line: bytes) -> Event:
        """Return the event of a line. Raises LogError, without the line's number."""
        if self._schema is None:
            self._schema = _readable_schema(line)
            event = self._decode(line, self._schema)
            if not isinstance(event, RunStarted | Keyframe):
                raise LogError(_NO_BEGINNING)
            return event
        return self._decode(line, self._schema)

    def _decode(self, line: bytes, schema: int) -> Event:
        try:
            return _decoder.decode(line if schema == SCHEMA_VERSION else _upgraded(line, schema))
        except NOT_JSON as error:
            raise LogError(str(error)) from error


def _upgraded(line: bytes, schema: int) -> bytes:
    try:
        return upgrade(line, schema)
    except (*NOT_JSON, KeyError, TypeError, AttributeError) as error:
        raise LogError(f"not an event of schema {schema}: {error!r}") from error


def _readable_schema(line: bytes) -> int:
    """Return the schema of a log from its first line. Raises LogError if there is no upgrade."""
    try:
        schema = schema_of(line)
    except NOT_JSON as error:
        raise LogError(str(error)) from error
    if schema != SCHEMA_VERSION and schema not in UPGRADES:
        raise LogError(
            f"the log has schema version {schema}, this version of Underglass reads up to "
            f"{SCHEMA_VERSION}: open it with the version that wrote it"
        )
    return schema
