"""A round of the playground without its host: a question, and the runs that tried to answer it."""

from collections.abc import Mapping
from typing import Any

from engine.core.log import EventLog
from visualizer.playing.page import Ran, page_html
from visualizer.playing.people import People
from visualizer.playing.questions import QUESTIONS, Question
from visualizer.playing.rerun import Run, Setup
from visualizer.playing.settings import changes


class Game:
    """The runs of one question.

    setup      everything that the last run depends on
    log        the log of the last run
    previous   the log of the run before, or None
    """

    def __init__(self, question: int = 0, setup: Setup | None = None) -> None:
        self._start(question, setup or QUESTIONS[question].setup)

    def _start(self, number: int, setup: Setup) -> None:
        run = setup.run()
        self.number, self.question, self.setup = number, QUESTIONS[number], setup
        self.runs = [_ran(self.question, setup, run, [])]

    @property
    def log(self) -> EventLog:
        """The log of the last run."""
        return self.runs[-1].people.log

    @property
    def previous(self) -> EventLog | None:
        """The log of the run before, or None."""
        return self.runs[-2].people.log if len(self.runs) > 1 else None

    def ask(self, number: int) -> None:
        """Start another question, from its own settings."""
        self._start(number, QUESTIONS[number].setup)

    def change(self, settings: Mapping[str, Any]) -> None:
        """Run with changed settings, if they differ. Raises SetupError for settings that cannot run."""
        setup = self.setup.changed(**settings)
        if setup != self.setup:
            self.show(setup, setup.run())

    def show(self, setup: Setup, run: Run) -> None:
        """Take a new run as the last one."""
        changed = changes(self.setup.settings, setup.settings)
        self.setup = setup
        self.runs.append(_ran(self.question, setup, run, changed))

    @property
    def is_reached(self) -> bool:
        """Whether the last run reaches all goals."""
        goals = zip(self.question.goals, self.runs[-1].values, strict=True)
        return all(goal.is_reached(value) for goal, value in goals)

    def html(self, error: str = "") -> str:
        """Return the playground as HTML (`page.py`), with the reason why a change did not run."""
        following = (self.number + 1) % len(QUESTIONS)
        return page_html(self.question, following, self.runs, error)


def _ran(question: Question, setup: Setup, run: Run, changed: list[str]) -> Ran:
    values = tuple(goal.measure.of(run.log) for goal in question.goals)
    return Ran(changed, People(run.log), setup.settings, values, run.left_out)
