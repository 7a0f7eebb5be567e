"""The playground: move a control, and the same workload runs again with the new settings.

    p = playground()                      # a simulated machine with slightly too little memory
    p.log, p.previous, p.settings         # this run, the previous run, this run's settings
    p.set(token_budget=16)                # the same as moving the control
    compare(p.previous, p.log)            # both runs side by side, with their first difference

The previous run stays visible: its numbers appear above those of the current run, its curves are in
the figures, and its board is one click away. The playground waits until the controls stop moving, and
it never runs two workloads at the same time.
"""

import asyncio
import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import traitlets

from engine.core.log import EventLog
from visualizer import read
from visualizer.logs import StepIndex
from visualizer.playing import controls
from visualizer.playing.numbers import changes, description, numbers, plots, table
from visualizer.playing.rerun import Cost, EngineConfig, Run, Setup, SetupError, Workload
from visualizer.reading.opening import opening
from visualizer.widgets.board import Board

# The style sheet uses JupyterLab's colours and so follows its light or dark theme.
STYLE = Path(__file__).with_name("playground.css").read_text("utf-8")
DEBOUNCE_SECONDS = 0.25  # how long the controls must rest before the workload runs


class Playground(widgets.VBox):  # type: ignore[misc]
    """Controls for a workload, and the run that results from them.

    log           the log of this run
    previous      the log of the previous run, or None
    setup         everything that this run depends on
    board         the board of this run
    board_before  the board of the previous run, or None
    controls      {setting: widget}
    """

    log = traitlets.Instance(EventLog)

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.controls = controls.build(setup.settings)
        self.previous: EventLog | None = None
        self.board_before: Board | None = None
        self._debounce = DEBOUNCE_SECONDS
        self._pending = False  # whether a control has moved since the last run
        self._ignore_moves = False
        self._settling: asyncio.Task[None] | None = None
        self._message = ""
        self._message_box = widgets.HTML()
        self._run_choice = widgets.ToggleButtons(
            options=["this run", "the run before"], layout={"display": "none"}
        )
        self._numbers = widgets.HTML()
        self._plots = widgets.Box([widgets.Output() for _ in range(4)])
        self._boards = widgets.Box()
        self._plots.add_class("underglass-plots")
        self._boards.add_class("underglass-stage")
        self._message_box.add_class("underglass-words")
        parts = [
            widgets.HTML(f"<style>\n{STYLE}</style>", layout={"display": "none"}),
            controls.lay_out(self.controls),
            widgets.HBox([self._message_box, self._run_choice], layout={"flex_flow": "row wrap"}),
            self._numbers,
            self._boards,
            self._plots,
        ]
        run = setup.run()
        super().__init__(parts, log=run.log)
        self.add_class("underglass-playground")
        self.board = Board(
            run.log, *opening(run.log, StepIndex(run.log), read(run.log).regimes)
        )  # an explicit step gives the board a model of its own, so it does not share its step
        self._boards.children = [self.board]
        self._show_numbers(run, "")
        self._show_plots(plots(run.log, None))
        self._run_choice.observe(self._switch_board, "value")
        for control in self.controls.values():
            control.observe(self._on_move, "value")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of this run, as {name: value}."""
        return self.setup.settings

    def set(self, **settings: Any) -> "Playground":
        """Change settings and run immediately. On failure, raises SetupError and changes nothing."""
        setup = self.setup.changed(**settings)
        run = setup.run()
        self._ignore_moves = True
        try:
            for name, value in settings.items():
                if name in self.controls:
                    self.controls[name].value = value
        finally:
            self._ignore_moves = False
        self._show(setup, run)
        self._show_plots(plots(self.log, self.previous))
        return self

    async def settled(self) -> None:
        """Wait until the controls stop moving and the resulting run is shown."""
        if self._settling is not None:
            await self._settling

    def _on_move(self, _: Any) -> None:
        if self._ignore_moves:
            return
        self._pending = True
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # outside a notebook there is no running event loop
            asyncio.run(self._settle())
            return
        if self._settling is None or self._settling.done():
            self._settling = loop.create_task(self._settle())

    async def _settle(self) -> None:
        while self._pending:
            self._pending = False
            await asyncio.sleep(self._debounce)
            if not self._pending:
                await self._run()

    async def _run(self) -> None:
        try:
            setup = self.setup.changed(**{name: one.value for name, one in self.controls.items()})
            if setup == self.setup:  # the control was moved back, so there is nothing to run
                self._show_message(self._message)
                return
            if setup.model:
                self._show_message("Running on the model \N{HORIZONTAL ELLIPSIS}")
            run = await asyncio.to_thread(setup.run)
            self._show(setup, run)
            # Drawing the figures takes longer than the run, so show the board first.
            self._show_plots(await asyncio.to_thread(plots, self.log, self.previous))
        except SetupError as error:
            self._show_message(str(error), failed=True)
        except Exception as error:
            self._show_message(f"{type(error).__name__}: {error}", failed=True)
            raise

    def _show(self, setup: Setup, run: Run) -> None:
        """Show a new run. The current run becomes the previous one."""
        changed = changes(self.setup.settings, setup.settings)
        self.setup, self.previous, self.log = setup, self.log, run.log
        self._show_numbers(run, changed)
        self._show_boards(self.previous)

    def _show_numbers(self, run: Run, changed: str) -> None:
        now = numbers(run.log)
        self._numbers.value = table(now, None if self.previous is None else numbers(self.previous))
        self._message = f"{changed} {description(run, now)}".strip()
        self._show_message(self._message)

    def _show_plots(self, bundles: list[dict[str, Any]]) -> None:
        for output, data in zip(self._plots.children, bundles, strict=True):
            output.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)

    def _show_boards(self, previous: EventLog) -> None:
        """Show both runs at the current step and selection."""
        step, selected = self.board.step, self.board.selected
        if self.board_before is None:
            self.board_before = Board(previous, step, selected)
            self._boards.children = [self.board, self.board_before]
            self._run_choice.layout.display = None
        else:
            self.board_before.view_model.replace(previous, step, selected)
        last = max(StepIndex(self.log).ends)
        known = any(row.request == selected for row in read(self.log).request_rows)
        self.board.view_model.replace(self.log, min(step, last), selected if known else None)
        self._run_choice.value = "this run"

    def _switch_board(self, change: Any) -> None:
        before = change["new"] == "the run before"
        (self._boards.add_class if before else self._boards.remove_class)("underglass-look-back")

    def _show_message(self, message: str, *, failed: bool = False) -> None:
        if failed:
            message += " The workload was not run; the last run is still shown below."
        role = "alert" if failed else "status"
        self._message_box.value = f'<p role="{role}">{html.escape(message)}</p>'

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
    """Show a workload with controls; it runs again whenever a control moves.

    config     the initial engine settings
    workload   requests to serve instead of generated traffic; the traffic controls are then omitted
    cost       the time of a step on the simulated machine; by default 10 ms plus 0.25 ms per token
    settings   initial values of single controls: fields of EngineConfig or Traffic, or `model`

    Raises SetupError for settings that cannot run.
    """
    setup = Setup(workload=workload)
    setup = replace(setup, config=config or setup.config, cost=cost or setup.cost)
    return Playground(setup.changed(**settings))
