"""What each step of a log decided and cost, as columns: from the facts that an index has."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from engine.core.log.log import EventLog
from visualizer.indexed import facts
from visualizer.indexed.known import Known, known_of

UNKNOWN = "unknown"  # the cause of a wait that the source of a foreign log does not give


@dataclass(slots=True)
class StepColumns:
    """One entry per finished step, in order. Requests and seats are those when it was scheduled.

    number    of the step
    busy      how long it took, in the log's unit: from its start, or the end of the step before if that
              is later (asynchronous scheduling), to its end
    idle      how long the engine had no request before it
    rows, tokens, prompt   requests that compute, the tokens they compute, and those of prompts
    again     tokens that later steps compute again because of preemptions in this step
    seats     taken
    waiting   requests in the queue; `away` of them were preempted, the policy deferred `deferred`, and
              the adapters of `slotless` were in no slot
    stalled   running requests that get no tokens because the budget is spent
    cause     why the head of the queue waits; "" if none does
    arrived, preempted   requests since the step before was scheduled
    """

    number: list[int] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    prompt: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    seats: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    away: list[int] = field(default_factory=list)
    deferred: list[int] = field(default_factory=list)
    slotless: list[int] = field(default_factory=list)
    stalled: list[int] = field(default_factory=list)
    cause: list[str] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)


def facts_for(log: EventLog) -> Known:
    """Return the facts that the columns of a log are made from."""
    return known_of(log, facts.Finished, facts.Plans, facts.Request)


class Columns:
    """The columns of a log.

    unit      "us", or "steps" if the log was saved without times: then each step takes 1
    settings, source   as in run_started
    begins_after   the step after which a cut log begins; 0 for a whole one
    labels    of all requests, in order of appearance
    twice     (index of the step of its preemption, request) of each row that computes tokens again
    victims   (index of a step, request) of each preemption
    """

    def __init__(self, known: Known) -> None:
        run, plans, all_of = known.run, known.plans, chain.from_iterable
        self.unit, self.labels = known.unit, known.labels
        self.settings, self.source, self.begins_after = run.settings, run.source, run.steps_before
        self.steps = steps = StepColumns()
        self.twice: list[tuple[int, int]] = []
        self.victims: list[tuple[int, int]] = []
        for name in _PER_STEP:
            setattr(steps, name, list(all_of(getattr(one, name) for one in plans)))
        for done in known.finished:
            steps.number += done.number
            steps.cause += [one.reason if one else "" for one in done.blocked]
        for index, victims in enumerate(all_of(one.victims for one in plans)):
            steps.preempted.append(len(victims))
            self.victims += [(index, request) for request in victims]
        self._set_losses(all_of(one.again for one in plans))
        self._set_times(known)

    def amounts(self, index: int) -> dict[str, int]:
        """Return how many requests wait in a step, by cause. A preempted one waits for its blocks."""
        steps = self.steps
        others = steps.waiting[index] - steps.away[index] - steps.deferred[index]
        others -= steps.slotless[index]
        found = {"preempted": steps.away[index], "policy": steps.deferred[index]}
        found["adapter_slot"] = steps.slotless[index]
        if others:
            found[steps.cause[index] or UNKNOWN] = others
        return found

    def _set_losses(self, again: Iterable[list[tuple[int, int, int]]]) -> None:
        index_of = {number: index for index, number in enumerate(self.steps.number)}
        self.steps.again = [0] * len(index_of)
        for index, rows in enumerate(again):
            for request, tokens, lost_in in rows:
                at = index_of.get(lost_in, index)  # it may be before a cut log begins
                self.steps.again[at] += tokens
                self.twice.append((at, request))

    def _set_times(self, known: Known) -> None:
        steps, paused, before = self.steps, known.paused, -1
        if self.unit == "steps":
            steps.busy, steps.idle = [1] * len(steps.number), [0] * len(steps.number)
            return
        for done, plan in zip(known.finished, known.plans, strict=True):
            times: Any = zip(done.begin, done.end, plan.is_after_idle, strict=True)
            for start, end, is_after_idle in times:
                idle = 0
                if is_after_idle and 0 <= before < start:
                    idle = start - before - paused.between(before, start)
                steps.idle.append(idle)
                steps.busy.append(max(0, end - max(start, before)))
                before = max(before, end)


_PER_STEP = "rows tokens prompt seats waiting away deferred slotless stalled arrived".split()
