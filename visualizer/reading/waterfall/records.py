"""One pass over a log: what each step took and what each request did in it."""

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import Any, Literal

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.simulation.latencies import PausedTime

_MEMORY = ("no_free_blocks", "whole_sequence", "reserved_blocks")
_NEIGHBOURS = 3  # decode-only steps before and after a step that its decodes are compared with


@dataclass(slots=True)
class Step:
    """A finished step, with times in the log's unit.

    begin       when its scheduling began
    launched    when its forward pass began: without asynchronous scheduling, when it was scheduled
    ready       when the pass ended: without asynchronous scheduling, the end of the step
    end         when its tokens were appended
    decodes     number of rows that decode
    prefills    number of rows that compute more, also again
    others_prefill   inferred: how much longer its decodes took because of its prefills
    blocked     (request, reason) of the head of the queue
    skipped     reason of each request that got no tokens
    is_failed   whether its scheduling failed
    is_after_gap     whether messages of a foreign log are missing since the step before
    """

    number: int
    begin: int = 0
    launched: int = 0
    ready: int = 0
    end: int = 0
    decodes: int = 0
    prefills: int = 0
    others_prefill: int = 0
    blocked: tuple[int, str] | None = None
    skipped: dict[int, str] = field(default_factory=dict)
    is_failed: bool = False
    is_after_gap: bool = False


@dataclass(slots=True)
class Work:
    """A request's row in a step: first `again` tokens that it had computed before, then `new` ones."""

    again: int
    new: int
    is_prefill: bool  # of the new tokens
    is_decode: bool  # of the whole row
    in_vain: bool = False


@dataclass(slots=True)
class Absence:
    """A preemption: the request is away from step `begin` to before step `end`."""

    begin: int
    by: int | None
    end: int | None = None


@dataclass(slots=True)
class Life:
    """A request, from its arrival to its end.

    arrived      time; None: before the log begins
    parent       the request that it forked off; up to step `forked` it was part of it
    examined     the first step whose scheduling could see it
    steps        number of finished steps when it arrived and when it ended; None: it lives
    first_token  index of the step that gave its first token
    admitted     the step in which it was first admitted; 0: before the log begins; None: not yet
    found        tokens found in the cache then
    adopted      how many of these another replica computed, and which one
    short        the first step in which only memory kept it out, and how many blocks were missing
    """

    id: int
    label: str
    prompt_tokens: int
    arrived: int | None
    examined: int
    parent: int | None = None
    forked: int = 0
    begins_at: int = 0
    ends_at: int | None = None
    reason: str | None = None
    first_token: int | None = None
    admitted: int | None = None
    found: int | None = None
    adopted: tuple[int, str] = (0, "")
    short: tuple[int, int] | None = None
    computed: int = 0  # tokens that it has ever computed
    work: dict[int, Work] = field(default_factory=dict)
    absences: list[Absence] = field(default_factory=list)


DECODE = Work(0, 1, is_prefill=False, is_decode=True)


class Records:
    """The finished steps, paused times and requests of a log.

    unit    "us", or "steps" if the log was saved without times: then each step takes 1
    source  of the log, as in run_started
    labels  of all requests, in order of appearance
    """

    unit: Literal["us", "steps"]
    steps: list[Step]
    paused: PausedTime
    source: dict[str, Any]
    labels: dict[int, str]

    def __init__(self, log: EventLog) -> None:
        is_timed = all("end" in event.t for event in log.each(v.StepFinished))
        self.unit = "us" if is_timed else "steps"
        self.steps = []
        self.paused = PausedTime()
        self._lives: dict[int, Life] = {}
        self._open: dict[int, Step] = {}  # scheduled and unfinished
        self._state = State()
        self._is_after_gap = False
        for event in log:
            self._before(event)
            self._state.apply(event)
            self._after(event)
        self.source = self._state.source
        self.labels = {life.id: life.label for life in self._lives.values()}
        infer_others_prefill(self.steps)

    def life(self, request: int) -> Life | None:
        """Return what is known of a request; None: the log does not have it."""
        return self._lives.get(request)

    def _before(self, event: v.Event) -> None:
        """Note an event that is about to be applied."""
        match event:
            case v.StepStarted():
                self._open[event.step] = Step(event.step, is_failed=True)
            case v.EventsMissing():
                self._is_after_gap = True
            case v.Preempted():
                self._preempted(event)
            case v.StepScheduled():
                number = self._state.step
                step = self._open.setdefault(number, Step(number))
                step.is_failed = False
                if event.blocked is not None:
                    step.blocked = event.blocked.request, event.blocked.reason
                    self._blocked(number, event.blocked)
                step.skipped = dict(event.skipped)
                self._planned(step, event.rows)
            case v.StepFinished():
                self._finished(event)
            case v.RequestFinished():
                life = self._lives[event.request]
                life.reason = event.reason
                # A failed pass ends its requests before the step is finished.
                life.ends_at = len(self.steps) + (event.reason == "error")

    def _after(self, event: v.Event) -> None:
        """Note an event that was applied."""
        if self.unit == "us":
            self.paused.note(event)
        match event:
            case v.Keyframe():
                self._rejoin()
            case v.RequestArrived():
                at = len(self.steps) if self.unit == "steps" else event.t.get("at")
                self._meet(self._state.requests[event.request], at)
            case v.Forked():
                self._forked(event)
            case v.Admitted():
                self._admitted(event)

    def _blocked(self, number: int, blocked: v.Blocked) -> None:
        """Note the first step in which more free blocks would have been enough."""
        life = self._lives.get(blocked.request)
        # Memory is checked last; without preemption, reserved blocks are checked after free ones.
        is_last = blocked.reason == "reserved_blocks" or self._state.settings.get("preemption")
        if life and life.short is None and is_last and blocked.reason in _MEMORY:
            life.short = number, blocked.need - blocked.have

    def _meet(self, request: v.RequestState, arrived: int | None) -> Life:
        life = Life(
            id=request.id,
            label=request.label,
            prompt_tokens=request.prompt_length,
            arrived=arrived,
            examined=self._state.step + 1,
            begins_at=len(self.steps),
        )
        self._lives[request.id] = life
        return life

    def _rejoin(self) -> None:
        """Begin with a keyframe: the past of its requests is not known."""
        state = self._state
        for request in state.requests.values():
            life = self._meet(request, None)
            life.examined = 0
            has_output = len(request.tokens) > request.prompt_length
            life.computed = len(request.tokens) - 1 if has_output else request.num_computed_tokens
            if request.id in state.running or request.preemptions:
                life.admitted = 0
            if request.id in state.waiting and request.preemptions:
                life.absences.append(Absence(0, None))
        for number, rows in state.plans.items():
            step = self._open[number] = Step(number)
            # With asynchronous scheduling, a request may have ended while its row is computed.
            self._planned(step, [row for row in rows if row.request in state.requests])

    def _forked(self, event: v.Forked) -> None:
        parent = self._lives[event.parent]
        life = self._meet(self._state.requests[event.request], parent.arrived)
        life.parent, life.forked = parent.id, self._state.step
        life.examined, life.begins_at = parent.examined, parent.begins_at
        life.admitted = parent.admitted
        life.found, life.adopted, life.computed = parent.found, parent.adopted, parent.computed
        life.work = dict(parent.work)
        life.absences = list(parent.absences)

    def _admitted(self, event: v.Admitted) -> None:
        life = self._lives[event.request]
        if life.absences and life.absences[-1].end is None:
            life.absences[-1].end = self._state.step
        if life.admitted is None:
            life.admitted = self._state.step
        if not event.resumed:
            life.found = len(event.blocks) * self._state.block_size
            life.adopted = self._state.adopted_prefix(event.node)

    def _preempted(self, event: v.Preempted) -> None:
        state, life = self._state, self._lives[event.request]
        request = state.requests[event.request]
        ends = [
            row.start + row.count - len(row.drafts)
            for rows in state.plans.values()
            for row in rows
            if row.request == event.request
        ]
        life.computed = max(life.computed, request.num_computed_tokens, *ends)
        by = None if event.needed_by < 0 else event.needed_by  # a foreign log may not say
        life.absences.append(Absence(state.step, by))

    def _planned(self, step: Step, rows: list[v.ScheduledRow]) -> None:
        for row in rows:
            life, request = self._lives[row.request], self._state.requests[row.request]
            work = _work(row, request, life.computed)
            life.work[step.number] = work
            step.decodes += work.is_decode
            step.prefills += not work.is_decode

    def _finished(self, event: v.StepFinished) -> None:
        number = event.step
        step = self._open.pop(number, None) or Step(number)
        for request in event.wasted:
            if request in self._state.requests and number in self._lives[request].work:
                work = self._lives[request].work
                work[number] = replace(work[number], in_vain=True)
        if any(other < number for other in self._open):
            return  # it failed while the step before was still being computed
        before = self.steps[-1].end if self.steps else 0
        _set_times(step, event.t if self.unit == "us" else {}, before)
        step.is_after_gap, self._is_after_gap = self._is_after_gap, False
        for gain in event.tokens:
            life = self._lives[gain.request]
            past = self._state.requests[gain.request]
            if life.first_token is None and len(past.tokens) == past.prompt_length:
                life.first_token = len(self.steps)
        self.steps.append(step)


def _work(row: v.ScheduledRow, request: v.RequestState, computed: int) -> Work:
    tokens = row.count - len(row.drafts)
    end = row.start + tokens
    again = max(0, min(end, computed) - row.start)
    # The engine has no phases: a decode computes the last token and nothing else.
    in_prompt = row.start < request.prompt_length
    is_decode = not in_prompt and tokens == 1 and end >= len(request.tokens)
    if is_decode and not again:
        return DECODE
    new = tokens - again
    ends_with_decode = row.start + again >= request.prompt_length and end >= len(request.tokens)
    return Work(again, new, not (ends_with_decode and new == 1), is_decode)


def _set_times(step: Step, t: dict[str, Any], before: int) -> None:
    if not t:
        step.begin = step.launched = before
        step.ready = step.end = before + 1
        return
    step.begin, step.end = t["start"], t["end"]
    step.launched = t.get("launched", t.get("scheduled", step.end))
    step.ready = t.get("ready", step.end)
    if not step.decodes + step.prefills:
        step.launched = step.ready = step.end  # there was no pass


def infer_others_prefill(steps: list[Step]) -> None:
    """Compare each step that decodes and prefills with steps nearby that only decode.

    The steps to compare with only decode, and their number of decodes is closest to this step's (the
    larger one, if two are equally close): the last three before it and the first three after it. Their
    low median is what the decodes alone would have taken. Without such a step, nothing is inferred.
    """
    alone: dict[int, list[int]] = {}  # number of decodes -> indexes of steps
    for index, step in enumerate(steps):
        if step.decodes and not step.prefills and not step.is_failed:
            alone.setdefault(step.decodes, []).append(index)
    for index, step in enumerate(steps):
        if not (step.decodes and step.prefills and alone):
            continue
        size = min(alone, key=lambda decodes: (abs(decodes - step.decodes), -decodes))
        at = bisect_left(alone[size], index)
        near = alone[size][max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS]
        usual = median_low(steps[one].ready - steps[one].launched for one in near)
        step.others_prefill = max(0, step.ready - step.launched - usual)
