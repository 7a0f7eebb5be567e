"""The playground: move a control, and the same people are served again under other settings.

    p = playground()                      # a pretend machine, a little too small for its traffic
    p.log, p.previous, p.settings         # this run, the one before, what it ran with
    p.set(token_budget=16)                # the same as moving the control
    compare(p.previous, p.log)            # both beside each other, and the first decision that differs

The run before stays: its numbers above this run's, its lines dashed in the figures, its board a click
away. Controls come to rest before anything is run, and never is there more than one run at a time.
"""

import asyncio
import html
from dataclasses import replace
from typing import Any

import ipywidgets as widgets

from engine.events import EventLog
from visualizer.board import NOBODY, Board
from visualizer.durations import duration
from visualizer.logs import Steps
from visualizer.playing import controls
from visualizer.playing.numbers import numbers, table
from visualizer.playing.plots import plots
from visualizer.playing.rerun import (
    Cost,
    EngineConfig,
    Served,
    Setup,
    SetupError,
    Workload,
)
from visualizer.playing.style import STYLE

AT_REST = 0.25  # seconds without a move


class Playground:
    """Controls over a workload, and what they lead to.

    log        of this run
    previous   of the run before, or None
    setup      all that this run depends on; `settings` are the parts that can be changed, by name
    board      this run's board; `board_before` is that of the run before, or None
    controls   the widgets, by the name of their setting
    widget     all of it, to be put into other widgets
    """

    def __init__(self, setup: Setup, *, at_rest: float = AT_REST) -> None:
        self.setup = setup
        self.controls = controls.build(setup.settings)
        self.log = EventLog()
        self.previous: EventLog | None = None
        self.board_before: Board | None = None
        self._told = ""
        self._at_rest = at_rest
        self._moved = False
        self._quiet = False
        self._settling: asyncio.Task[None] | None = None
        self._words = widgets.HTML()
        self._which = widgets.ToggleButtons(
            options=["this run", "the run before"], layout={"display": "none"}
        )
        self._numbers = widgets.HTML()
        self._plots = widgets.Box([widgets.Output() for _ in range(4)])
        self._stage = widgets.Box()
        for part, name in ((self._plots, "plots"), (self._stage, "stage"), (self._words, "words")):
            part.add_class(f"underglass-{name}")
        self._show(setup, setup.serve())
        self._draw(plots(self.log, self.previous))
        self._which.observe(self._look, "value")
        for control in self.controls.values():
            control.observe(self._control_moved, "value")
        parts = [
            widgets.HTML(STYLE, layout={"display": "none"}),
            controls.laid_out(self.controls),
            widgets.HBox([self._words, self._which], layout={"flex_flow": "row wrap"}),
            self._numbers,
            self._stage,
            self._plots,
        ]
        self.widget = widgets.VBox(parts)
        self.widget.add_class("underglass-playground")

    @property
    def settings(self) -> dict[str, Any]:
        """What this run ran with, by name."""
        return self.setup.settings

    def set(self, **settings: Any) -> "Playground":
        """Change settings and run at once. Raises SetupError if they cannot be, and changes nothing."""
        setup = self.setup.changed(**settings)
        served = setup.serve()
        self._quiet = True
        try:
            for name, value in settings.items():
                if name in self.controls:
                    self.controls[name].value = value
        finally:
            self._quiet = False
        self._show(setup, served)
        self._draw(plots(self.log, self.previous))
        return self

    async def settled(self) -> None:
        """Wait until the controls are at rest and what they ask for is shown."""
        if self._settling is not None:
            await self._settling

    # A control moves

    def _control_moved(self, _: Any) -> None:
        if self._quiet:
            return
        self._moved = True
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no notebook: nothing would ever wake up again
            asyncio.run(self._settle())
            return
        if self._settling is None or self._settling.done():
            self._settling = loop.create_task(self._settle())

    async def _settle(self) -> None:
        while self._moved:
            self._moved = False
            await asyncio.sleep(self._at_rest)
            if not self._moved:
                await self._run()

    async def _run(self) -> None:
        elsewhere = asyncio.get_running_loop().run_in_executor
        try:
            setup = self.setup.changed(**{name: one.value for name, one in self.controls.items()})
            if setup == self.setup:  # there and back again: the run before is worth keeping
                self._say(self._told)
                return
            if setup.model:
                self._say("Running on the model \N{HORIZONTAL ELLIPSIS}")
            served = await elsewhere(None, setup.serve)
            self._show(setup, served)
            # Figures take longer than the run: the board is there before them.
            self._draw(await elsewhere(None, plots, self.log, self.previous))
        except SetupError as error:
            self._say(str(error), wrong=True)
        except Exception as error:
            self._say(f"{type(error).__name__}: {error}", wrong=True)
            raise

    # What it leads to

    def _show(self, setup: Setup, served: Served) -> None:
        changed = _changes(self.setup.settings, setup.settings)
        self.setup, self.previous, self.log = setup, self.log if len(self.log) else None, served.log
        now = numbers(self.log)
        self._numbers.value = table(now, None if self.previous is None else numbers(self.previous))
        self._show_boards()
        self._told = " ".join(filter(None, (changed, _in_words(served, now))))
        self._say(self._told)

    def _draw(self, bundles: list[dict[str, Any]]) -> None:
        for output, data in zip(self._plots.children, bundles, strict=True):
            output.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)

    def _show_boards(self) -> None:
        """Show this run where the reader is; the first run opens where something happens."""
        if self.previous is None:
            # With a moment of its own, so that nobody else's board of this log goes along.
            self.board = Board(self.log, *Steps(self.log).opening)
            self._stage.children = [self.board]
        else:
            view, step, selected = self.board.view_model, self.board.step, self.board.selected
            if self.board_before is None:
                self.board_before = Board(self.previous, step, selected)
                self._stage.children = [self.board, self.board_before]
                self._which.layout.display = None
            else:
                self.board_before.view_model.replace(self.previous, step, selected)
            last = max(Steps(self.log).ends)
            known = selected in self.log.requests.index
            view.replace(self.log, min(step, last), selected if known else NOBODY)
            self._which.value = "this run"

    def _look(self, change: Any) -> None:
        """This run's board, or the one before."""
        look = (
            self._stage.add_class if change["new"] == "the run before" else self._stage.remove_class
        )
        look("underglass-look-back")

    def _say(self, words: str, *, wrong: bool = False) -> None:
        if wrong:
            words += " Nothing was run: below is still the last run."
        role = "alert" if wrong else "status"
        self._words.value = f'<p role="{role}">{html.escape(words)}</p>'

    def _repr_mimebundle_(self, **options: Any) -> Any:
        shown = self.widget._repr_mimebundle_(**options)
        data = shown[0] if isinstance(shown, tuple) else shown
        data["text/plain"] = repr(self)
        return shown

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"Playground({settings})"


def playground(
    config: EngineConfig | None = None,
    workload: Workload | None = None,
    *,
    cost: Cost | None = None,
    **settings: Any,
) -> Playground:
    """Controls over a workload that is served again whenever one is moved.

    config     where the controls begin
    workload   who asks what, in place of traffic that is drawn; then its controls are not there
    cost       what a step costs on the pretend machine; None: 10 ms and 0.25 ms per token
    settings   where single controls begin: fields of EngineConfig and of Traffic, and `model`

    Raises SetupError for settings that cannot be run.
    """
    setup = Setup(workload=workload)
    setup = replace(setup, config=config or setup.config, cost=cost or setup.cost)
    return Playground(setup.changed(**settings))


def _changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    changed = [
        f"{controls.NAMES.get(name, name)} {_spoken(before[name])} \N{RIGHTWARDS ARROW} {_spoken(new)}"
        for name, new in now.items()
        if before[name] != new
    ]
    return f"Changed: {', '.join(changed)}." if changed else ""


def _spoken(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _in_words(served: Served, now: dict[str, float]) -> str:
    requests = len(served.log.requests)
    words = f"{requests} request{'' if requests == 1 else 's'} in {now['steps']:.0f} steps, "
    words += f"run in {duration(1000 * served.seconds)}."
    if served.left_out:
        words += f" {served.left_out} more were left out, so that a run does not take too long."
    return words
