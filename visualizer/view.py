"""What the panels of one log share: the log, one cursor, one selection.

A view is a widget without a picture. Every panel refers to it, so the log travels and is saved once,
however many panels there are, and what one panel does all others show. The packed log is base64 text:
JupyterLab saves bytes as an empty object. A large log is not saved in the notebook: a part that is
small enough is, and the browser asks for the whole while there is a kernel.
"""

import base64
import gzip
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import ipywidgets
import traitlets

from engine.events import EventLog
from engine.events.vocabulary import Event, RequestArrived, RequestFinished
from visualizer.logs import LogLike, Steps, read_log
from visualizer.named_logs import Scenario, find

NOBODY = -1
AXES = ("steps", "time")
SAVED_BYTES = 1_300_000  # of a packed log in the notebook; base64 takes 4 characters for 3 bytes

LARGE = 20_000_000  # bytes of a log

PROJECT = Path(__file__).parents[1]

_VIEWS: "WeakValueDictionary[int, LogModel]" = (
    WeakValueDictionary()
)  # by the id of the log it holds


class LogModel(ipywidgets.Widget):  # type: ignore[misc]
    """Where readers of a log are: step, selected request (or -1), range, window, time axis.

    A notebook saves at most `room` bytes of the packed log.

    log    the packed log in base64, or the part that is saved; empty where no part is small enough
    whole  is that all of the log?
    sizes  bytes of the packed log, and the limit
    """

    log = traitlets.Unicode().tag(sync=True)
    whole = traitlets.Bool(True).tag(sync=True)
    sizes = traitlets.Dict().tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    selected = traitlets.Int(NOBODY).tag(sync=True)
    range = traitlets.List(traitlets.Int()).tag(sync=True)
    window = traitlets.List(traitlets.Int()).tag(sync=True)
    axis = traitlets.Enum(AXES, default_value="steps").tag(sync=True)
    project = traitlets.Dict().tag(sync=True)
    about = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        events: EventLog,
        step: int | None = None,
        select: int | None = None,
        scenario: Scenario | None = None,
        room: int = SAVED_BYTES,
    ) -> None:
        self.room = room
        if scenario is not None:
            step = scenario.step if step is None else step
            select = scenario.select if select is None else select
        super().__init__(
            **self._opened(events, step, select),
            project={"path": str(PROJECT), "home": str(Path.home())},
            about={} if scenario is None else scenario.about,
        )
        self.on_msg(self._answer)

    def replace(self, log: LogLike, step: int | None = None, select: int | None = None) -> None:
        """Show another log in all panels of this view, at a moment, or where something happens."""
        state = self._opened(read_log(log), step, select) | {"range": [], "window": [], "about": {}}
        with self.hold_sync():
            for name, value in state.items():
                setattr(self, name, value)

    def _opened(self, events: EventLog, step: int | None, select: int | None) -> dict[str, Any]:
        """Takes a log, and says what its panels have to know of it and of its first moment."""
        self.events = events
        self.count = len(events)
        self.steps = Steps(events)
        self.requests = _count_requests(events)
        request = None
        if step is None:
            step, request = self.steps.opening
        if select is None:
            select = self.steps.whose(step) if request is None else request
        self.packed = _pack(events)
        whole = len(self.packed) <= self.room
        part = b"" if whole else _part(events, self.steps, step, len(self.packed), self.room)
        return {
            "log": base64.b64encode(self.packed if whole else part).decode(),
            "whole": whole,
            "sizes": {"packed": len(self.packed), "limit": self.room},
            "step": step,
            "selected": NOBODY if select is None else select,
        }

    def _answer(self, _: Any, message: Any, __: Any) -> None:
        """The browser asks for what is too large to be saved."""
        if isinstance(message, dict) and message.get("ask") == "log":
            self.send({"log": True}, [self.packed])

    @traitlets.validate("step")
    def _within_log(self, proposal: Any) -> int:
        return self.checked(proposal["value"], "step")

    @traitlets.validate("range", "window")
    def _ends_within_log(self, proposal: Any) -> list[int]:
        ends: list[int] = proposal["value"]
        name = proposal["trait"].name
        if ends and (len(ends) != 2 or ends[0] > ends[1]):
            raise ValueError(f"{name} must be (first step, last step), got {tuple(ends)}")
        if name == "range":
            for end in ends:
                self.checked(end, name)
        return ends

    def checked(self, step: int, name: str) -> int:
        """`step`, if the log has it; ValueError otherwise, which calls it `name`."""
        known = self.steps.ends
        if not known:
            return 0
        first, last = min(known), max(known)
        if not first <= step <= last:
            raise ValueError(f"{name} must lie in {first} to {last}, got {step}")
        return step


def view_of(log: LogLike, step: int | None = None, select: int | None = None) -> LogModel:
    """The view that the panels of this log share.

    A log that has grown since begins a new one. A caller who asks for a moment gets a view of their
    own, so that what was shown before stays as it was; a scenario by its name is such a moment, too.
    """
    events, scenario = read_log(log), find(log)
    if step is not None or select is not None or scenario is not None:
        return LogModel(events, step, select, scenario)
    view = _VIEWS.get(id(events))
    if view is None or view.count != len(events):
        view = _VIEWS[id(events)] = LogModel(events)
    return view


def _pack(log: EventLog) -> bytes:
    data = log.to_bytes()
    # A large one goes to the browser on this machine once: packing it well would take longer than that.
    return gzip.compress(data, 6 if len(data) < LARGE else 1, mtime=0)


def _part(log: EventLog, steps: Steps, step: int, packed: int, room: int) -> bytes:
    """The steps around `step`, behind a keyframe, as many as fit into `room` bytes; packed.

    Empty where not even one fits: ten thousand long prompts may wait in every step.
    """
    ends = list(steps.ends.values())
    if not ends:
        return b""
    at = list(steps.ends).index(step)
    count = max(1, int(room / packed * len(ends)))
    while True:
        first = min(max(0, at - count // 2), len(ends) - count)
        begin = ends[first - 1] if first else 0
        part = EventLog()
        if begin:
            part.append(log.state(log.next_seq - len(log) + begin - 1).keyframe())
        for event in log[begin : ends[first + count - 1]]:
            part.append(event)
        data = _pack(part)
        if len(data) <= room:
            return data
        if count == 1:
            return b""
        count = max(1, count * 3 // 4)


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
