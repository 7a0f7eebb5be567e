"""The board and its panels as notebook widgets.

A panel consists of the JavaScript module and a reference to its LogModel (see `log_model.py`). The
browser folds the log and draws it, so stepping never waits for the kernel. The kernel receives the
current step a few times per second and can also set it through any panel.
"""

from typing import Any, overload

import ipywidgets
import traitlets

from engine.cluster.cluster_log import ClusterLog
from visualizer.html import MODULE
from visualizer.logs import AXES, LEVELS, LogLike, Select, check_level, read_any, state_at
from visualizer.reading.knowledge import steps_before
from visualizer.reading.messages import count
from visualizer.scenario import find_scenario
from visualizer.widgets.cluster_board import ClusterBoard
from visualizer.widgets.log_model import LogModel, model_of
from visualizer.widgets.picture import PictureWidget

PANELS = ("timeline", "blocks", "tree", "scheduler", "tokens", "experts", "waterfall")
StepRange = tuple[int, int]
Limits = tuple[float, float]


class Board(PictureWidget):
    """A log with one current step and one selected request.

    step       the current step
    selected   the id of the selected request, or None
    axis       the unit of the timeline: "steps", or "time" for wall time
    level      how much this board shows: "lanes", "memory" or "all"

    Boards and panels of the same log share their step and selection unless `step` or `select` is given.
    A panel created from a board, instead of a log, shares the step and selection of that board.
    """

    _esm = MODULE
    _panel = ""  # set by the panels below
    panel = traitlets.Unicode("").tag(sync=True)
    only = traitlets.Unicode("").tag(sync=True)
    level = traitlets.Enum(LEVELS, default_value="all").tag(sync=True)
    view_model = traitlets.Instance(LogModel).tag(sync=True, **ipywidgets.widget_serialization)
    step = traitlets.Int(0)
    selected = traitlets.Int(None, allow_none=True)
    axis = traitlets.Enum(AXES, default_value="steps")

    def __init__(
        self,
        log: "LogLike | Board",
        step: int | None = None,
        select: Select = "auto",
        *,
        window: StepRange | None = None,
        range: StepRange | None = None,
        axis: str | None = None,
        slo: Limits | None = None,
        panel: str = "",
        level: str = "all",
    ) -> None:
        if axis is not None and axis not in AXES:
            raise ValueError(f"axis must be one of {', '.join(AXES)}, got {axis!r}")
        if panel and panel not in PANELS:
            raise ValueError(f"panel must be one of {', '.join(PANELS)}, got {panel!r}")
        model = log.view_model if isinstance(log, Board) else model_of(log, step, select)
        super().__init__(
            view_model=model,
            panel=self._panel,
            only=panel,
            level=check_level(level),
            step=model.step,
            selected=model.selected,
        )
        for name in ("step", "selected", "axis"):
            traitlets.link((model, name), (self, name))
        if axis is not None:
            model.axis = axis
        if window is not None:
            model.window = list(window)
        if range is not None:
            model.range = list(range)
        if slo is not None:
            model.slo = list(slo)

    @traitlets.validate("step")
    def _validate_step(self, proposal: Any) -> int:
        return self.view_model.check_step(proposal["value"], "step")

    def state(self) -> dict[str, Any]:
        """Return the engine's state after the current step, as plain values (see `State.core`).

        Python folds the log up to the step on display. The state includes waiting and running
        requests, free blocks, reference counts, block tables and tree nodes.
        """
        model = self.view_model
        if not model.steps.ends:
            raise ValueError("the log has no step yet: run a step, then show the log again")
        return state_at(model.events, model.steps, self.step)

    def __repr__(self) -> str:
        model, name = self.view_model, type(self).__name__
        requests = count(model.num_requests, "request")
        if not model.steps.ends:
            return f"{name}({requests}, no steps)"
        steps, before = count(len(model.steps.ends), "step"), steps_before(model.events)
        part = f" of {max(model.steps.ends):,}" if before else ""
        return f"{name}({requests}, {steps}{part}, at step {self.step})"


class Timeline(Board):
    """Only the timeline: memory, tokens and queue over all steps, and one lane per request."""

    _panel = "timeline"


class BlockMap(Board):
    """Only the KV blocks, with the block table of the selected request."""

    _panel = "blocks"


class RadixTree(Board):
    """Only the radix tree of the prefix cache."""

    _panel = "tree"


class Scheduler(Board):
    """Only the scheduler's decisions in the current step, in order, with their reasons."""

    _panel = "scheduler"


class Tokens(Board):
    """Only the prompt and output tokens of the selected request."""

    _panel = "tokens"


@overload
def show(
    log: ClusterLog,
    *,
    at_ms: float | None = None,
    select: Select = "auto",
    level: str = "all",
) -> ClusterBoard: ...
@overload
def show(
    log: LogLike | Board,
    step: int | None = None,
    select: Select = "auto",
    *,
    window: StepRange | None = None,
    range: StepRange | None = None,
    axis: str | None = None,
    slo: Limits | None = None,
    panel: str = "",
    level: str = "all",
) -> Board: ...
def show(
    log: LogLike | Board | ClusterLog,
    step: int | None = None,
    select: Select = "auto",
    *,
    at_ms: float | None = None,
    window: StepRange | None = None,
    range: StepRange | None = None,
    axis: str | None = None,
    slo: Limits | None = None,
    panel: str = "",
    level: str = "all",
) -> Board | ClusterBoard:
    """Show a log: an EventLog, a path to a `.jsonl` file, JSON Lines, or the name of a scenario.

    A scenario (see `gallery`) opens at its own step and shows its caption. A ClusterLog, or a file with
    one, is shown as a ClusterBoard, with `at_ms`, `select` and `level` only.

    step    the step to open; defaults to the step of this log's other panels, or if there are none,
            to the worst or the most eventful step (see `visualizer.reading.opening`)
    select  the id or label of the request to select, None for no request, or "auto": the request that
            the step is about
    window  the first and last step that the timeline shows
    range   the first and last step to summarize
    axis    "steps", or "time" for wall time
    slo     the limits of the goodput in milliseconds: the time to the first token, and the 99th
            percentile of a request's times between tokens
    panel   the panel to show alone: "timeline", "blocks", "tree", "scheduler", "tokens",
            "experts" (of a mixture of experts), or "waterfall" (where the time of each request went)
    level   how much to show until the reader chooses: "lanes" (lanes, seats and the step's sentence),
            "memory" (also the blocks and the prefix tree), or "all"
    at_ms   for a cluster log: the time to open, in milliseconds since the gateway started
    """
    # The name of a scenario is passed on, because its board has a caption.
    events = log if isinstance(log, Board) or find_scenario(log) else read_any(log)
    if isinstance(events, ClusterLog):
        only = {"step": step, "window": window, "range": range, "axis": axis, "slo": slo}
        for name, value in (only | {"panel": panel or None}).items():
            if value is not None:
                raise ValueError(f"{name} must be omitted for a cluster log, got {value!r}")
        return ClusterBoard(events, at_ms=at_ms, select=select, level=level)
    if at_ms is not None:
        raise ValueError(f"at_ms must be omitted for the log of one engine, got {at_ms}: use step")
    return Board(
        events,
        step,
        select,
        window=window,
        range=range,
        axis=axis,
        slo=slo,
        panel=panel,
        level=level,
    )
