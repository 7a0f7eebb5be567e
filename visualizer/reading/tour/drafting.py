"""The drafts of a log: their numbers, and the step in which the most of a request were accepted."""

from dataclasses import dataclass

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from visualizer.indexed.known import Known
from visualizer.indexed.step_facts import COUNTS

_DRAFTED = COUNTS.index("drafted")


@dataclass(slots=True)
class Drafts:
    """The drafts of a request in a step, how many were accepted, and how many tokens it gained."""

    request: int
    step: int
    drafts: int
    accepted: int
    gained: int


class Drafting:
    """The drafts of a log.

    best     those of which the most were accepted; None: the log has none
    drafted, accepted   in the whole run
    """

    def __init__(self, log: EventLog, known: Known) -> None:
        self.best: Drafts | None = None
        self.drafted = self.accepted = 0
        if any(any(some.counts[_DRAFTED]) for some in known.steps):
            self._collect(log)

    def _collect(self, log: EventLog) -> None:
        step, plans = 0, dict[int, dict[int, int]]()  # drafts of each request in steps to come
        kinds = (v.Keyframe, v.StepStarted, v.StepScheduled, v.Preempted, v.StepFinished)
        for event in log.each(*kinds):
            match event:
                case v.Keyframe():
                    step = event.state.step
                    plans = {number: _drafts(rows) for number, rows in event.state.in_flight}
                    plans[step] = _drafts(event.state.plan)
                case v.StepStarted():
                    step = event.step
                case v.StepScheduled():
                    plans[step] = _drafts(event.rows)
                case v.Preempted():
                    for plan in plans.values():
                        plan.pop(event.request, None)
                case v.StepFinished():
                    self._add(event, plans.pop(event.step, {}))

    def _add(self, event: v.StepFinished, plan: dict[int, int]) -> None:
        for gain in event.tokens:
            if drafts := plan.get(gain.request, 0):
                self.drafted, self.accepted = self.drafted + drafts, self.accepted + gain.accepted
                best = self.best
                if best is None or (gain.accepted, drafts) > (best.accepted, best.drafts):
                    new = Drafts(gain.request, event.step, drafts, gain.accepted, len(gain.ids))
                    self.best = new


def _drafts(rows: list[v.ScheduledRow]) -> dict[int, int]:
    return {row.request: len(row.drafts) for row in rows if row.drafts}
