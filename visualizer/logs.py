"""Read a log from its various forms, index its steps, and choose the step to open.

`visualizer/frontend/src/model/opening.js` chooses the same step in the browser. Python needs it, too:
a board knows its step before a browser shows it.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from engine.events import Event, EventLog, State
from engine.events.vocabulary import (
    Admitted,
    Keyframe,
    Preempted,
    RadixEvicted,
    RequestArrived,
    RequestFinished,
    StepFinished,
    StepScheduled,
    StepStarted,
)
from visualizer.named_logs import find_scenario

LogLike = EventLog | str | bytes | Path
# The request to select: its id, None for no request, "auto" for the one that the step is about.
Select = int | Literal["auto"] | None


def read_log(log: LogLike) -> EventLog:
    """Return a log: an EventLog, a `.jsonl` file, JSON Lines as text or bytes, or a scenario by name.

    Raises LogError for an invalid log, FileNotFoundError for a path without a file,
    UnknownScenarioError for a name that is neither a file nor a scenario, TypeError for other types.
    """
    if isinstance(log, EventLog):
        return log
    with _gc_disabled():
        if isinstance(log, bytes):
            return EventLog.from_bytes(log)
        if isinstance(log, str) and (log.lstrip().startswith("{") or not log.strip()):
            return EventLog.from_bytes(log.encode())
        if isinstance(log, str | Path):
            scenario = find_scenario(log)
            return EventLog.load(log) if scenario is None else scenario.log
    kind = type(log).__name__
    raise TypeError(f"log must be an EventLog, a path to a .jsonl file, or JSON Lines, got {kind}")


@contextmanager
def _gc_disabled() -> Iterator[None]:
    """Disable garbage collection.

    The collector would walk through all events again and again while they are read. With a million
    events, that takes three times as long as reading them, and none of them can be collected.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class StepIndex:
    """The events of each step, and the steps worth looking at.

    A step ends with the last event of its commit. Arrivals, aborts and cleared caches between two
    steps belong to the later one, even if it has not begun.
    """

    def __init__(self, log: EventLog) -> None:
        self.ends: dict[int, int] = {}  # step -> index after its last event
        self.preempted: dict[int, int] = {}  # step -> first request preempted
        self.hits: dict[int, int] = {}  # step -> first request with a cache hit
        self._largest: tuple[int, int, int | None] = (
            0,
            0,
            None,
        )  # rows, step, request of the first row
        step = log[0].state["step"] if isinstance(log[0], Keyframe) else 0
        committed = True
        for index, event in enumerate(log):
            if type(event) not in _INDEXED:
                continue
            begun = step
            if isinstance(event, StepStarted):
                begun, committed = event.step, False
            elif committed and _between_steps(event):
                begun, committed = step + 1, False
            elif isinstance(event, StepFinished):
                committed = True
            if begun != step:
                if step:
                    self.ends[step] = index
                step = begun
            self._note(event, step)
        if step:
            self.ends[step] = len(log)

    def _note(self, event: Event, step: int) -> None:
        if isinstance(event, Preempted):
            self.preempted.setdefault(step, event.request)
        elif isinstance(event, Admitted) and event.blocks:
            self.hits.setdefault(step, event.request)
        elif isinstance(event, StepScheduled) and len(event.rows) > self._largest[0]:
            self._largest = len(event.rows), step, event.rows[0].request

    @property
    def opening(self) -> tuple[int, int | None]:
        """Step and request of the first preemption, else first cache hit, else largest batch."""
        for moments in (self.preempted, self.hits):
            if moments:
                return next(iter(moments.items()))
        rows, step, request = self._largest
        return (step, request) if rows else (min(self.ends, default=0), None)

    def notable_request(self, step: int) -> int | None:
        """Return the first request preempted in a step, else the first one with a cache hit."""
        return self.preempted.get(step, self.hits.get(step))


def count_requests(log: EventLog) -> int:
    """Return the number of requests in the log; each sample counts."""
    first = log[0] if len(log) else None
    known = len(first.state["requests"]) if isinstance(first, Keyframe) else 0
    return known + sum(event.n for event in log.of(RequestArrived))


def state_at(log: EventLog, steps: StepIndex, step: int) -> dict[str, Any]:
    """Return the state after `step` as plain values; see `State.core`."""
    state = State()
    for event in log[: steps.ends[step]]:
        state.apply(event)
    return state.core()


# Two thirds of the events in a log are of other types, which the index does not need.
_INDEXED = {
    StepStarted,
    StepScheduled,
    StepFinished,
    RequestArrived,
    RequestFinished,
    Admitted,
    Preempted,
    RadixEvicted,
}


def _between_steps(event: Event) -> bool:
    return (
        isinstance(event, RequestArrived)
        or (isinstance(event, RequestFinished) and event.reason == "abort")
        or (isinstance(event, RadixEvicted) and event.reason == "cleared")
    )
