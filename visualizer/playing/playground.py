"""The playground: a question, four controls, and the lanes of the run that results from them.

    p = playground()                      # seven people, four seats, and a goal for Ada's first token
    p.log, p.previous, p.settings         # this run, the previous run, this run's settings
    p.set(token_budget=16)                # the same as moving the control
    show(p.log), compare(p.previous, p.log)

The run before stays as an outline below each bar. The browser waits until the controls stop moving, and
there are never two runs at the same time. A notebook saves the page as HTML, for both themes
(`visualizer/widgets/picture.py`).
"""

import asyncio
from dataclasses import replace
from typing import Any

import traitlets

from engine.core.log import EventLog
from visualizer.front_end import built
from visualizer.playing.game import Game
from visualizer.playing.questions import QUESTIONS
from visualizer.playing.rerun import Cost, EngineConfig, Setup, SetupError, Workload
from visualizer.widgets.picture import Output, SavedWidget, page_outputs

OWN_TRAFFIC = len(QUESTIONS) - 1  # the question without a goal


class Playground(SavedWidget):
    """Controls for a workload, and the run that results from them.

    log        the log of this run
    previous   the log of the previous run, or None
    setup      everything that this run depends on
    page       what is shown, as HTML
    """

    page = traitlets.Unicode().tag(sync=True)

    def __init__(self, game: Game) -> None:
        self.game = game
        self._wanted: dict[str, Any] = {}
        self._running: asyncio.Task[None] | None = None
        super().__init__(page=game.html(), _esm=built("play.js").read_text("utf-8"))
        self.on_msg(self._on_message)
        self.observe(lambda _: self._save(), "page")

    @property
    def log(self) -> EventLog:
        """The log of the last run."""
        return self.game.log

    @property
    def previous(self) -> EventLog | None:
        """The log of the run before, or None."""
        return self.game.previous

    @property
    def setup(self) -> Setup:
        """Everything that the last run depends on."""
        return self.game.setup

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of this run, as {name: value}."""
        return self.setup.settings

    def set(self, **settings: Any) -> "Playground":
        """Change settings and run immediately. On failure, raises SetupError and changes nothing."""
        setup = self.setup.changed(**settings)
        self._show(setup, setup.run())
        return self

    def ask(self, number: int) -> "Playground":
        """Start another question: see `visualizer.playing.questions`."""
        self.game.ask(number)
        self.page = self.game.html()
        return self

    async def settled(self) -> None:
        """Wait until the settings that were last asked for have run."""
        if self._running is not None:
            await self._running

    def _on_message(self, _: Any, message: Any, __: Any) -> None:
        if "question" in message:
            self._wanted = {}
            self.ask(message["question"])
            return
        self._wanted = message["settings"]
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # outside a notebook there is no running event loop
            asyncio.run(self._run())
            return
        if self._running is None or self._running.done():
            self._running = loop.create_task(self._run())

    async def _run(self) -> None:
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            asked = self.game.number
            try:
                setup = self.setup.changed(**wanted)
                run = await asyncio.to_thread(setup.run) if setup != self.setup else None
            except SetupError as error:
                self.page = self.game.html(str(error))
                continue
            if run is not None and asked == self.game.number:
                self._show(setup, run)
            else:
                self.page = self.game.html()

    def _show(self, setup: Setup, run: Any) -> None:
        self.game.show(setup, run)
        self.page = self.game.html()

    def _saved(self) -> list[Output]:
        """Return the page for readers without this kernel: its controls do nothing there."""
        return page_outputs(f'<div class="ug-saved" inert>{self.page}</div>')

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"Playground({settings})"


def playground(
    config: EngineConfig | None = None,
    workload: Workload | None = None,
    *,
    question: int | None = None,
    cost: Cost | None = None,
    **settings: Any,
) -> Playground:
    """Show a question about a workload, with controls; it runs again whenever a control moves.

    config     the initial engine settings
    workload   requests to serve instead of generated traffic; the traffic controls are then omitted
    question   the number of a question: 0 to 2 have a goal, 3 is your own traffic. By default 0, or
               3 if anything else is given
    cost       the time of a step on the simulated machine; by default 10 ms plus 0.25 ms per token
    settings   initial values of single controls: fields of EngineConfig or Traffic, or `model`

    Raises SetupError for settings that cannot run.
    """
    own = config is not None or workload is not None or cost is not None or bool(settings)
    number = (OWN_TRAFFIC if own else 0) if question is None else question
    if not 0 <= number < len(QUESTIONS):
        raise SetupError(f"question must be 0 to {len(QUESTIONS) - 1}, got {question}")
    start = QUESTIONS[number].setup
    setup = replace(
        start,
        workload=workload or start.workload,
        config=config or start.config,
        cost=cost or start.cost,
    )
    return Playground(Game(number, setup.changed(**settings)))
