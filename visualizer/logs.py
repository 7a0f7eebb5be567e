"""A log from whatever a caller has, and the step that is worth opening it at.

`visualizer/frontend/src/model/opening.js` chooses the same step in the browser; Python chooses it,
too, so that a board can say truthfully where it stands before any browser has seen it.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from visualizer.named_logs import find

LogLike = EventLog | str | bytes | Path


def read_log(log: LogLike) -> EventLog:
    """The log itself, or one read from a `.jsonl` file or from JSON Lines as text or bytes, or a
    scenario's by its name (see `gallery`).

    Raises LogError for what is not a log, FileNotFoundError for a path without a file,
    UnknownScenarioError for a name that is neither, TypeError for anything else.
    """
    if isinstance(log, EventLog):
        return log
    with _no_collection():
        if isinstance(log, bytes):
            return EventLog.from_bytes(log)
        if isinstance(log, str) and (log.lstrip().startswith("{") or not log.strip()):
            return EventLog.from_bytes(log.encode())
        if isinstance(log, str | Path):
            scenario = find(log)
            return EventLog.load(log) if scenario is None else scenario.log
    kind = type(log).__name__
    raise TypeError(f"log: got {kind}; give an EventLog, a path to a .jsonl file, or JSON Lines")


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection meanwhile.

    Every so many new objects it walks through all there are. Of a million events none can be
    collected, and looking for cycles among them takes three times as long as reading them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Steps:
    """Which events belong to which step, and what each step is like.

    A step ends with the last event of its commit. Arrivals, aborts and cleared caches between two
    steps belong to the later one, even if it has not begun.
    """

    def __init__(self, log: EventLog) -> None:
        self.ends: dict[int, int] = {}  # step -> index just behind its last event
        self.preempted: dict[int, int] = {}  # step -> first victim
        self.hits: dict[int, int] = {}  # step -> first request that found something in the cache
        self._fullest = 0, 0, -1  # rows, step, request of the first row
        step = log[0].state["step"] if isinstance(log[0], Keyframe) else 0
        over = True
        for index, event in enumerate(log):
            if type(event) not in _TELLING:
                continue
            begun = step
            if isinstance(event, StepStarted):
                begun, over = event.step, False
            elif over and _between_steps(event):
                begun, over = step + 1, False
            elif isinstance(event, StepFinished):
                over = True
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
        elif isinstance(event, StepScheduled) and len(event.rows) > self._fullest[0]:
            self._fullest = len(event.rows), step, event.rows[0].request

    @property
    def opening(self) -> tuple[int, int | None]:
        """Step and request: the first preemption, else the first hit, else the fullest batch."""
        for moments in (self.preempted, self.hits):
            if moments:
                return next(iter(moments.items()))
        rows, step, request = self._fullest
        return (step, request) if rows else (min(self.ends, default=0), None)

    def whose(self, step: int) -> int | None:
        """The request that something happens to in a step: preempted, else found in the cache."""
        return self.preempted.get(step, self.hits.get(step))


def state_at(log: EventLog, steps: Steps, step: int) -> dict[str, Any]:
    """The folded state after `step`, as plain values; see `State.core`."""
    state = State()
    for event in log[: steps.ends[step]]:
        state.apply(event)
    return state.core()


# Two of three events of a log are others, which begin nothing and are no reason to look.
_TELLING = {
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
