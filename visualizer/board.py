"""The board as a notebook widget.

What the widget shows is in its traits: the log as bytes, the step and the selected request. The
browser folds the log and draws; stepping and scrubbing never wait for the kernel. Python hears of the
step a few times a second and can set it.
"""

import gzip
from typing import Any

import anywidget
import traitlets

from engine.events import EventLog
from engine.events.vocabulary import Event, RequestArrived, RequestFinished
from visualizer.html import MODULE
from visualizer.logs import LogLike, Steps, read_log, state_at

NOBODY = -1


class Board(anywidget.AnyWidget):
    """A log on one cursor and one selection.

    step       the step that is shown
    selected   the id of the selected request, or -1
    """

    _esm = MODULE
    log = traitlets.Bytes().tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    selected = traitlets.Int(NOBODY).tag(sync=True)

    def __init__(self, log: LogLike, step: int | None = None, select: int | None = None) -> None:
        self._events = read_log(log)
        self._steps = Steps(self._events)
        self._requests = _count_requests(self._events)
        request = None
        if step is None:
            step, request = self._steps.opening
        if select is None:
            select = self._steps.whose(step) if request is None else request
        super().__init__(
            log=gzip.compress(self._events.to_bytes(), mtime=0),
            step=step,
            selected=NOBODY if select is None else select,
        )

    @traitlets.validate("step")
    def _within_log(self, proposal: Any) -> int:
        steps = self._steps.ends
        if not steps:
            return 0
        first, last = min(steps), max(steps)
        if not first <= proposal["value"] <= last:
            raise ValueError(f"step must lie in {first} to {last}, got {proposal['value']}")
        return int(proposal["value"])

    def state(self) -> dict[str, Any]:
        """The engine's state after the step that is shown, as plain values.

        The Python fold of the log, the same state that the picture shows: waiting and running
        requests, free blocks, reference counts, block tables, tree nodes.
        """
        if not self._steps.ends:
            raise ValueError("the log has no step yet: let the engine step, then show it again")
        return state_at(self._events, self._steps, self.step)

    def __repr__(self) -> str:
        count = len(self._steps.ends)
        requests = f"{self._requests} request{'' if self._requests == 1 else 's'}"
        if not count:
            return f"Board({requests}, no steps)"
        steps = f"{count} step{'' if count == 1 else 's'}"
        return f"Board({requests}, {steps}, at step {self.step})"


def show(log: LogLike, step: int | None = None, select: int | None = None) -> Board:
    """The whole board for a log: an EventLog, a path to a `.jsonl` file, or JSON Lines.

    It opens at `step` with the request `select`; left out, where something happens: the first
    preemption, else the first hit in the cache, else the fullest batch.
    """
    return Board(log, step, select)


def _count_requests(log: EventLog) -> int:
    """How many requests the log knows, the samples of one prompt counted each."""
    known: set[int] = set()
    event: Event
    for event in log:
        if isinstance(event, RequestArrived):
            known.update(range(event.request, event.request + event.n))
        elif isinstance(event, RequestFinished):
            known.add(event.request)
        elif (state := getattr(event, "state", None)) is not None:
            known.update(entry["id"] for entry in state["requests"])
    return len(known)
