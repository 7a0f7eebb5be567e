"""The model that all panels of a log share: the log, one step and one selected request.

A LogModel is a widget without a view. Every panel refers to it, so the log is sent and saved only
once, no matter how many panels there are, and a change in one panel shows up in all of them. The
packed log is base64 text because JupyterLab saves bytes as an empty object. If a log is too large to
save in the notebook, only part of it is saved, and the browser asks the kernel for the whole log.
"""

import base64
import gzip
import math
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import ipywidgets
import traitlets

from engine.core.log import EventLog
from visualizer import read
from visualizer.front_end import part_of_board
from visualizer.html import MODULE
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.logs import (
    AXES,
    LogLike,
    Select,
    StepIndex,
    count_requests,
    part_of,
    read_log,
)
from visualizer.packed import pack, run_in_words, with_more
from visualizer.reading.opening import opening
from visualizer.reading.why.find import selected_request
from visualizer.scenario import Scenario, find_scenario
from visualizer.widgets.seat_process import SeatProcess

SLO = (150.0, 40.0)  # ms: time to the first token, p99 of a request's times between tokens
SAVED_BYTES = 1_300_000  # limit per notebook output, before base64 adds a third
PROJECT = MODULE.parents[2]

# Models by the id() of their log.
_MODELS: "WeakValueDictionary[int, LogModel]" = WeakValueDictionary()


class LogModel(ipywidgets.Widget):  # type: ignore[misc]
    """A log and the current view of it: step, selected request or None, range, window, time axis, SLO.

    A notebook saves at most `max_saved` bytes of the packed log.

    log    the packed log in base64, or the part that is saved; empty if no part is small enough
    whole  whether `log` holds the whole log
    sizes  the size of the packed log and the limit, in bytes, and the log's last step
    """

    log = traitlets.Unicode().tag(sync=True)
    whole = traitlets.Bool(True).tag(sync=True)
    sizes = traitlets.Dict().tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    # On the wire and in saved notebooks, -1 stands for None.
    selected = traitlets.Int(None, allow_none=True).tag(
        sync=True,
        to_json=lambda request, _: -1 if request is None else request,
        from_json=lambda request, _: None if request == -1 else request,
    )
    range = traitlets.List(traitlets.Int()).tag(sync=True)
    window = traitlets.List(traitlets.Int()).tag(sync=True)
    axis = traitlets.Enum(AXES, default_value="steps").tag(sync=True)
    slo = traitlets.List(traitlets.Float(), default_value=list(SLO)).tag(sync=True)
    project = traitlets.Dict().tag(sync=True)
    about = traitlets.Dict().tag(sync=True)
    run = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        events: EventLog,
        step: int | None = None,
        select: Select = "auto",
        scenario: Scenario | None = None,
        max_saved: int = SAVED_BYTES,
    ) -> None:
        self.max_saved = max_saved
        self._seat: SeatProcess | None = None
        self._decided: tuple[EventLog, int] | None = None  # its log, and how long it was
        if scenario is not None:
            step = scenario.step if step is None else step
            select = scenario.select if select == "auto" else select
        super().__init__(
            **self._load(events, step, select),
            project={"path": str(PROJECT), "home": str(Path.home())},
            about={} if scenario is None else scenario.about,
        )
        self.on_msg(self._answer)

    def replace(self, log: LogLike, step: int | None = None, select: Select = "auto") -> None:
        """Show a different log in all panels of this model."""
        state = self._load(read_log(log), step, select) | {"range": [], "window": [], "about": {}}
        with self.hold_sync():
            for name, value in state.items():
                setattr(self, name, value)

    def _load(self, events: EventLog, step: int | None, select: Select) -> dict[str, Any]:
        """Set the log and return the traits that depend on it."""
        self.events = events
        self.count = len(events)
        # The front end asks later, when the engine's log may have grown.
        can_grow = self.count and not isinstance(events, IndexedLog)
        self.shown = EventLog.from_events(events[:]) if can_grow else events
        self.steps = StepIndex(events)
        self.num_requests = count_requests(events)
        request, regimes = None, read(events).regimes
        if step is None:
            step, request = opening(events, self.steps, regimes)
        if select == "auto":
            select = self.steps.notable_request(step) if request is None else request
        else:
            select = selected_request(events, select)
        self.packed = pack(events)
        whole = len(self.packed) <= self.max_saved
        saved = self.packed if whole else _part(self, step)
        return {
            "log": base64.b64encode(saved).decode(),
            "whole": whole,
            "sizes": {
                "packed": len(self.packed),
                "limit": self.max_saved,
                "last_step": max(self.steps.ends, default=0),
            },
            "step": step,
            "selected": select,
            "run": run_in_words(events),
        }

    def _answer(self, _: Any, message: Any, __: Any) -> None:
        """Send the front end what it asks for: the whole log, a trace, the tour, or the seat."""
        asked = message.get("ask") if isinstance(message, dict) else None
        if asked == "log":
            self.send({"log": True}, [self.packed])
        elif asked == "more":
            self.run = with_more(self.run, self.shown)
        elif asked == "tour":
            self.send({"tour": True}, [read(self.shown).tour.to_json()])
        elif asked in {"seat.js", "tour.js"}:
            self.send({asked: True}, [part_of_board(asked)])
        elif asked == "seat":
            if self._seat is None or self._decided != (self.events, len(self.events)):
                self._seat = SeatProcess(self.events)
                self._decided = (self.events, len(self.events))
            self._seat.answer(self, message)
        elif asked == "stop" and self._seat is not None:
            self._seat.stop(message["id"])
        elif asked == "trace":
            from visualizer.perfetto import to_perfetto

            self.send({"trace": True}, [gzip.compress(to_perfetto(self.shown).encode(), 6)])

    @traitlets.validate("step")
    def _validate_step(self, proposal: Any) -> int:
        return self.check_step(proposal["value"], "step")

    @traitlets.validate("range", "window")
    def _validate_steps(self, proposal: Any) -> list[int]:
        ends: list[int] = proposal["value"]
        name = proposal["trait"].name
        if ends and (len(ends) != 2 or ends[0] > ends[1]):
            raise ValueError(f"{name} must be (first step, last step), got {tuple(ends)}")
        if name == "range":
            for end in ends:
                self.check_step(end, name)
        return ends

    @traitlets.validate("slo")
    def _validate_slo(self, proposal: Any) -> list[float]:
        limits: list[float] = proposal["value"]
        if len(limits) != 2 or not all(0 <= limit < math.inf for limit in limits):
            raise ValueError(f"slo must be (TTFT, ITL), both at least 0 ms, got {tuple(limits)}")
        return limits

    def check_step(self, step: int, name: str) -> int:
        """Return `step` if the log has it. Otherwise raise a ValueError that names the field `name`."""
        ends = self.steps.ends
        if not ends:
            return 0
        first, last = min(ends), max(ends)
        if not first <= step <= last:
            raise ValueError(f"{name} must be between {first} and {last}, got {step}")
        return step


def model_of(log: LogLike, step: int | None = None, select: Select = "auto") -> LogModel:
    """Return the model that the panels of this log share.

    Boards already on the page must not change, so the caller gets a new model if the log has grown, if
    `step` or `select` is given, or if `log` is the name of a scenario.
    """
    events, scenario = read_log(log), find_scenario(log)
    if step is not None or select != "auto" or scenario is not None:
        return LogModel(events, step, select, scenario)
    model = _MODELS.get(id(events))
    if model is None or model.count != len(events):
        model = _MODELS[id(events)] = LogModel(events)
    return model


def _part(model: LogModel, step: int) -> bytes:
    """Return a keyframe and as many steps around `step` as fit into `max_saved` bytes, packed.

    The result is empty if not even one step fits, for example if ten thousand long prompts wait in
    every step.
    """
    log, ends = model.events, list(model.steps.ends.values())
    if not ends:
        return b""
    position = list(model.steps.ends).index(step)
    count = max(1, int(model.max_saved / len(model.packed) * len(ends)))
    while True:
        first = min(max(0, position - count // 2), len(ends) - count)
        begin = ends[first - 1] if first else 0
        data = pack(part_of(log, begin, ends[first + count - 1]))
        if len(data) <= model.max_saved:
            return data
        if count == 1:
            return b""
        count = max(1, count * 3 // 4)
