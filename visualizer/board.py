"""The board and its panels as notebook widgets.

A panel holds the module that draws and a reference to its view; see `visualizer.view`. The browser
folds the log and draws; stepping and scrubbing never wait for the kernel. Python hears of the step a
few times a second and can set it, from any panel.
"""

from typing import Any

import ipywidgets
import traitlets

from visualizer.html import MODULE
from visualizer.logs import LogLike, state_at
from visualizer.pictured import Pictured
from visualizer.view import AXES, NOBODY, LogModel, view_of

__all__ = ["NOBODY", "BlockMap", "Board", "RadixTree", "Scheduler", "Timeline", "Tokens", "show"]

PANELS = ("timeline", "blocks", "tree", "scheduler", "tokens")
Steps = tuple[int, int]


class Board(Pictured):
    """A log on one cursor and one selection.

    step       the step that is shown
    selected   the id of the selected request, or -1
    axis       what the timeline counts: "steps" or "time", which is wall time

    Boards and panels of one log that were not asked for a moment share both. Given another board in
    place of a log, a panel shares that board's.
    """

    _esm = MODULE
    _panel = ""  # the only panel, for those that stand alone
    panel = traitlets.Unicode("").tag(sync=True)
    only = traitlets.Unicode("").tag(sync=True)
    view_model = traitlets.Instance(LogModel).tag(sync=True, **ipywidgets.widget_serialization)
    step = traitlets.Int(0)
    selected = traitlets.Int(NOBODY)
    axis = traitlets.Enum(AXES, default_value="steps")

    def __init__(
        self,
        log: "LogLike | Board",
        step: int | None = None,
        select: int | None = None,
        *,
        window: Steps | None = None,
        range: Steps | None = None,
        axis: str | None = None,
        panel: str = "",
    ) -> None:
        if axis is not None and axis not in AXES:
            raise ValueError(f"axis must be one of {', '.join(AXES)}, got {axis!r}")
        if panel and panel not in PANELS:
            raise ValueError(f"panel must be one of {', '.join(PANELS)}, got {panel!r}")
        view = log.view_model if isinstance(log, Board) else view_of(log, step, select)
        super().__init__(
            view_model=view,
            panel=self._panel,
            only=panel,
            step=view.step,
            selected=view.selected,
        )
        traitlets.link((view, "step"), (self, "step"))
        traitlets.link((view, "selected"), (self, "selected"))
        traitlets.link((view, "axis"), (self, "axis"))
        if axis is not None:
            view.axis = axis
        if window is not None:
            view.window = list(window)
        if range is not None:
            view.range = list(range)

    @traitlets.validate("step")
    def _within_log(self, proposal: Any) -> int:
        return self.view_model.checked(proposal["value"], "step")

    @property
    def range(self) -> Steps | None:
        """The steps that are summed up, first and last, or None."""
        steps = self.view_model.range
        return (steps[0], steps[1]) if steps else None

    @range.setter
    def range(self, steps: Steps | None) -> None:
        self.view_model.range = list(steps or ())

    def state(self) -> dict[str, Any]:
        """The engine's state after the step that is shown, as plain values.

        The Python fold of the log, the same state that the picture shows: waiting and running
        requests, free blocks, reference counts, block tables, tree nodes.
        """
        view = self.view_model
        if not view.steps.ends:
            raise ValueError("the log has no step yet: let the engine step, then show it again")
        return state_at(view.events, view.steps, self.step)

    def to_kwargs(self) -> dict[str, Any]:
        """What is shown, so that `show(log, **board.to_kwargs())` shows it again."""
        view = self.view_model
        shown: dict[str, Any] = {"step": self.step}
        if self.selected != NOBODY:
            shown["select"] = self.selected
        if view.window:
            shown["window"] = tuple(view.window)
        if view.range:
            shown["range"] = tuple(view.range)
        if view.axis != "steps":
            shown["axis"] = view.axis
        if self.panel or self.only:
            shown["panel"] = self.panel or self.only
        return shown

    def url_fragment(self) -> str:
        """What is shown, as the end of the address of an exported page of this log."""
        view = self.view_model
        parts = [
            f"step={self.step}",
            f"selected={'' if self.selected == NOBODY else self.selected}",
        ]
        if view.window:
            parts += [f"from={view.window[0]}", f"to={view.window[1]}"]
        if view.range:
            parts.append(f"range={view.range[0]}-{view.range[1]}")
        if view.axis != "steps":
            parts.append(f"axis={view.axis}")
        if self.panel or self.only:
            parts.append(f"panel={self.panel or self.only}")
        return "#" + "&".join(parts)

    def __repr__(self) -> str:
        view = self.view_model
        count = len(view.steps.ends)
        requests = f"{view.requests} request{'' if view.requests == 1 else 's'}"
        name = type(self).__name__
        if not count:
            return f"{name}({requests}, no steps)"
        steps = f"{count} step{'' if count == 1 else 's'}"
        return f"{name}({requests}, {steps}, at step {self.step})"


class Timeline(Board):
    """Strip and lanes alone: memory, tokens and queue over all steps, a lane per request."""

    _panel = "timeline"


class BlockMap(Board):
    """Physical KV memory alone, with the selected request's block table."""

    _panel = "blocks"


class RadixTree(Board):
    """The prefix tree alone."""

    _panel = "tree"


class Scheduler(Board):
    """The step's decisions alone, in order, with their reasons."""

    _panel = "scheduler"


class Tokens(Board):
    """The selected request's prompt and output alone, token by token."""

    _panel = "tokens"


def show(
    log: LogLike | Board,
    step: int | None = None,
    select: int | None = None,
    *,
    window: Steps | None = None,
    range: Steps | None = None,
    axis: str | None = None,
    panel: str = "",
) -> Board:
    """The whole board for a log: an EventLog, a path to a `.jsonl` file, JSON Lines, or the name of a
    scenario in the `gallery`, which is shown at its telling step under its caption.

    It opens at `step` with the request `select`; left out, where something happens: the first
    preemption, else the first hit in the cache, else the fullest batch; or where another panel of this
    log stands already. `window` are the steps that the timeline shows, `range` those that are summed
    up, `axis` is "steps" or, for wall time, "time"; `panel` is the one to begin with on a far wall.
    """
    return Board(log, step, select, window=window, range=range, axis=axis, panel=panel)
