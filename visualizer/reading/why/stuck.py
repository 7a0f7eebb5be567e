"""List the queue of one step, with the age and the blocker of each request."""

import html
from dataclasses import dataclass
from typing import Any

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.simulation.facts import Knowledge
from visualizer.indexed import facts
from visualizer.indexed.known import Known, known_of
from visualizer.indexed.names import unique_names
from visualizer.reading.durations import duration
from visualizer.reading.messages import MESSAGES, count, put_off_words, reason_words
from visualizer.reading.waterfall.causes import FOR_ALL
from visualizer.reading.waterfall.parts import mark_of
from visualizer.reading.why.log_index import WhyError

_WORDS = MESSAGES["stuck"]


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A waiting request after a step was scheduled.

    steps   for how many steps it has waited, this one included; after a preemption, since then
    age     microseconds from its arrival to when the step was scheduled; None if the log does not know,
            or the step has not finished
    reason  why it was not admitted; None if the log does not say
    behind  the head of the queue, whose reason it is; None if the reason is its own
    need, have   of the head, in the reason's unit; None if the reason has no numbers
    mark    whether the log recorded the reason, or it is inferred or unknown
    words   the reason, with its numbers
    """

    request: int
    name: str
    steps: int
    age: int | None
    is_preempted: bool
    reason: str | None
    behind: int | None
    need: int | None
    have: int | None
    mark: Knowledge
    words: str


@dataclass(frozen=True)
class Stuck:
    """The queue of a step, in its order: see `Waiting`."""

    step: int
    requests: list[Waiting]

    def __str__(self) -> str:
        """Return a line for each request."""
        if not self.requests:
            return f"No request waits in step {self.step}."
        waits = "waits" if len(self.requests) == 1 else "wait"
        head = f"{count(len(self.requests), 'request')} {waits} in step {self.step}"
        names = max(len(one.name) for one in self.requests)
        return "\n".join([f"{head}.", *(self._line(one, names) for one in self.requests)])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    @staticmethod
    def _line(one: Waiting, width: int) -> str:
        age = f"{one.steps} step{'s' * (one.steps != 1)}"
        age = age if one.age is None else f"{duration(one.age / 1000)}, {age}"
        mark = ", inferred" if one.mark == "inferred" else ""
        state = ", preempted" if one.is_preempted else ""
        return f"{one.name:{width}}  {age:>20}{state}  {one.words}{mark}"


def stuck(log: EventLog, step: int | None = None) -> Stuck:
    """Return the queue after a step was scheduled; None: the last one.

    Raises WhyError for a step that the log does not have.
    """
    known = known_of(log)
    steps = known.scheduled
    if not steps:
        raise WhyError("step: the log has no scheduled step, so there is no queue")
    step = steps.nth(len(steps) - 1)[0] if step is None else step
    if step not in steps:
        steps_known = f"its steps are {steps.nth(0)[0]} to {steps.nth(len(steps) - 1)[0]}"
        raise WhyError(f"step: {step} is not in this log; {steps_known}")
    state = log.state(log.next_seq - len(log) + steps[step])
    return Stuck(step, _Queue(known, state, log[steps[step]], step).requests())


class _Queue:
    """The queue right after `event`, the step_scheduled of a step; `now` is its time."""

    def __init__(self, known: Known, state: State, event: v.Event, step: int) -> None:
        assert isinstance(event, v.StepScheduled)
        self.state, self.event, self.step = state, event, step
        self.scheduled = known.scheduled
        now, end = self.scheduled.times(step)
        self.now: Any = end if now is None else now
        self.names = unique_names(known.labels)
        self.known = {one.id: one for one in known.outlines(state.waiting)}

    def requests(self) -> list[Waiting]:
        """Return the waiting requests, in the queue's order."""
        return [self._waiting(request) for request in self.state.waiting]

    def _steps(self, request: facts.Request) -> int:
        preempted = [step for step, *_ in request.preemptions if step <= self.step]
        since = preempted[-1] if preempted else request.examined
        count = self.scheduled.count_before
        return count(self.step + 1) - count(since)

    def _waiting(self, id_: int) -> Waiting:
        request, blocked = self.state.requests[id_], self.event.blocked
        reason, behind, need, have, words = None, None, None, None, _WORDS["unknown"]
        if (put_off := dict(self.event.skipped).get(id_)) is not None:
            reason = put_off
            words = put_off_words(self.state, reason, id_)
        elif blocked is not None:
            reason = blocked.reason
            if blocked.request == id_ or reason in FOR_ALL:
                words = "".join(map(str, reason_words(self.state, self.event)))
            else:
                behind = blocked.request
                words = f"behind {self.names[behind]}"
            if "numbers" in MESSAGES["reasons"][reason]:
                need, have = blocked.need, blocked.have
        arrived: Any = self.known[id_].arrived_at
        mark = "unknown" if reason is None else mark_of(reason, self.state.source)
        return Waiting(
            request=id_,
            name=self.names[id_],
            steps=self._steps(self.known[id_]),
            age=None if arrived is None or self.now is None else max(0, self.now - arrived),
            is_preempted=request.preemptions > 0,
            reason=reason,
            behind=behind,
            need=need,
            have=have,
            mark=mark,
            words=words,
        )
