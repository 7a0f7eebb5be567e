"""Take the scheduler's seat: what a step decided, and what another choice would have led to.

    seat = Seat(log)
    seat.decisions(20)                       # the candidates of each decision of step 20
    taken = seat.take(20, Victim(1))         # the real scheduler goes on from there
    print(taken)                             # the consequence in one sentence
    compare(taken.happened, taken.log)

`engine/simulation/rerun.py` says how the exact state of a step is reached, and when it cannot be.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.simulation.choice import Choice
from engine.simulation.rerun import MOST_EVENTS, Rerun
from visualizer.logs import LogLike, read_log
from visualizer.seat.consequence import Consequence, consequence
from visualizer.seat.decisions import Decision, decisions


@dataclass(frozen=True)
class Taken:
    """A choice and its consequence.

    happened  the run as it was, timed like `log`
    log       the run with the choice: equal to `happened` before `step`
    step      the step of the choice, in both logs
    """

    happened: EventLog
    log: EventLog
    step: int
    choice: Choice
    consequence: Consequence

    def __str__(self) -> str:
        from visualizer.reading.story import names_of, plain

        return plain(self.consequence.words, names_of(self.log))


class Seat:
    """The scheduler's seat in a log."""

    def __init__(self, log: LogLike, **parts: Any) -> None:
        """`parts` are parts of the logged run that cannot be made from their names."""
        found = read_log(log)
        is_whole = type(found) is EventLog or len(found) > MOST_EVENTS
        # A log that is read from its index is read once, because it is read often.
        self.log = found if is_whole else EventLog.from_events(list(found))
        self._parts = parts

    @cached_property
    def rerun(self) -> Rerun:
        """The log's rerun. Raises ChoiceError for a log that cannot be run again."""
        return Rerun(self.log, **self._parts)

    def decisions(self, step: int) -> list[Decision]:
        """Return the decisions of a step. Raises ChoiceError if its state cannot be reached."""
        self.rerun.check(step)
        return decisions(self.log, step)

    def around(self, step: int) -> tuple[int | None, int | None]:
        """Return the nearest steps before and after a step with a preemption, eviction or admission."""
        now, found = 0, list[int]()
        for event in self.log:
            match event:
                case v.StepStarted():
                    now = event.step
                case v.Preempted() | v.Admitted() | v.RadixEvicted() if found[-1:] != [now]:
                    found.append(now)
        return (
            max((one for one in found if one < step), default=None),
            min((one for one in found if one > step), default=None),
        )

    def take(self, step: int, choice: Choice) -> Taken:
        """Decide a step otherwise. Raises ChoiceError if that cannot be done."""
        rerun = self.rerun
        log, at = rerun.take(step, choice), rerun.steps[step]
        found = consequence(rerun.happened, log, choice, at, rerun.cost)
        return Taken(rerun.happened, log, at, choice, found)


def take(log: LogLike, step: int, choice: Choice, **parts: Any) -> Taken:
    """Decide a step of a log otherwise; see `Seat`."""
    return Seat(log, **parts).take(step, choice)
