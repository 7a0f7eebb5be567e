"""What each step of a log decided and cost, as columns: from the facts that an index has."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass, field
from typing import Any

from visualizer.indexed import facts
from visualizer.indexed.known import Known

UNKNOWN = "unknown"  # the cause of a wait that the source of a foreign log does not give


def _small() -> "array[int]":
    return array("i")


def _wide() -> "array[int]":
    return array("q")


class Pairs:
    """Pairs of numbers as two columns, because a long log has many."""

    def __init__(self) -> None:
        self._firsts, self._seconds = _wide(), _wide()

    def append(self, first: int, second: int) -> None:
        """Add a pair."""
        self._firsts.append(first)
        self._seconds.append(second)

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._seconds, strict=True)


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
    cause     why the head of the queue waits, as a number of `Columns.causes`
    arrived, preempted   requests since the step before was scheduled
    """

    number: MutableSequence[int] = field(default_factory=_wide)
    busy: MutableSequence[int] = field(default_factory=_wide)
    idle: MutableSequence[int] = field(default_factory=_wide)
    rows: MutableSequence[int] = field(default_factory=_small)
    tokens: MutableSequence[int] = field(default_factory=_small)
    prompt: MutableSequence[int] = field(default_factory=_small)
    again: MutableSequence[int] = field(default_factory=_small)
    seats: MutableSequence[int] = field(default_factory=_small)
    waiting: MutableSequence[int] = field(default_factory=_small)
    away: MutableSequence[int] = field(default_factory=_small)
    deferred: MutableSequence[int] = field(default_factory=_small)
    slotless: MutableSequence[int] = field(default_factory=_small)
    stalled: MutableSequence[int] = field(default_factory=_small)
    cause: MutableSequence[int] = field(default_factory=lambda: array("b"))
    arrived: MutableSequence[int] = field(default_factory=_small)
    preempted: MutableSequence[int] = field(default_factory=_small)


class Columns:
    """The columns of a log.

    unit      "us", or "steps" if the log was saved without times: then each step takes 1
    settings, source   as in run_started
    begins_after   the step after which a cut log begins; 0 for a whole one
    labels    of all requests, in order of appearance
    causes    why the head of a queue waits, by number; "" if none does
    twice     (index of the step of its preemption, request) of each row that computes tokens again
    victims   (index of a step, request) of each preemption
    """

    def __init__(self, known: Known) -> None:
        run = known.run
        self.unit, self.labels = known.unit, known.labels
        self.settings, self.source, self.begins_after = run.settings, run.source, run.steps_before
        self.steps = steps = StepColumns()
        self.causes = {"": 0}
        self.twice, self.victims = Pairs(), Pairs()
        before = -1
        for done, plan in zip(known.finished, known.plans, strict=True):
            first = len(steps.number)
            steps.number.extend(done.number)
            causes = [one.reason if one else "" for one in done.blocked]
            steps.cause.extend(self.causes.setdefault(one, len(self.causes)) for one in causes)
            for name in _PER_STEP:
                getattr(steps, name).extend(getattr(plan, name))
            steps.preempted.extend(map(len, plan.victims))
            for index, some in enumerate(plan.victims, first):
                for one in some:
                    self.victims.append(index, one)
            self._add_losses(plan.again, first)
            before = self._add_times(known, done, plan, before)

    def amounts(self, index: int) -> dict[str, int]:
        """Return how many requests wait in a step, by cause. A preempted one waits for its blocks."""
        steps = self.steps
        others = steps.waiting[index] - steps.away[index] - steps.deferred[index]
        others -= steps.slotless[index]
        found = {"preempted": steps.away[index], "policy": steps.deferred[index]}
        found["adapter_slot"] = steps.slotless[index]
        if others:
            found[[*self.causes][steps.cause[index]] or UNKNOWN] = others
        return found

    def _add_losses(self, again: list[list[tuple[int, int, int]]], first: int) -> None:
        numbers = self.steps.number
        self.steps.again.extend([0] * len(again))
        for index, rows in enumerate(again, first):
            for request, tokens, lost_in in rows:
                at = bisect_left(numbers, lost_in)
                if at == len(numbers) or numbers[at] != lost_in:
                    at = index  # the step of the preemption is before a cut log begins
                self.steps.again[at] += tokens
                self.twice.append(at, request)

    def _add_times(self, known: Known, done: facts.Finished, plan: facts.Plans, before: Any) -> Any:
        """Add the times of some steps, and return when the last one ended."""
        steps = self.steps
        if self.unit == "steps":
            steps.busy.extend([1] * len(done.number))
            steps.idle.extend([0] * len(done.number))
            return before
        paused = known.paused
        times: Any = zip(done.begin, done.end, plan.is_after_idle, strict=True)
        for start, end, is_after_idle in times:
            idle = 0
            if is_after_idle and 0 <= before < start:
                idle = start - before - paused.between(before, start)
            steps.idle.append(idle)
            steps.busy.append(max(0, end - max(start, before)))
            before = max(before, end)
        return before


_PER_STEP = "rows tokens prompt seats waiting away deferred slotless stalled arrived".split()
