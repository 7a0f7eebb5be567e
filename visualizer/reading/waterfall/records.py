"""What each step of a log took and what each request did in it: from the facts that an index has."""

from bisect import bisect_left
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any, Literal, Self

from engine.core.log import EventLog
from engine.simulation.latencies import PausedTime
from visualizer.indexed import facts
from visualizer.indexed.known import Known, known_of

_ROWS = {"prefill", "catchup", "decode"}
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
    output_tokens   of it alone, not of the request that it forked off from
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
    output_tokens: int = 0
    work: dict[int, Work] = field(default_factory=dict)
    absences: list[Absence] = field(default_factory=list)


DECODE = Work(0, 1, is_prefill=False, is_decode=True)


class Records:
    """The finished steps, paused times and requests of a log.

    unit    "us", or "steps" if the log was saved without times: then each step takes 1
    source  of the log, as in run_started
    """

    def __init__(self) -> None:
        self.unit: Literal["us", "steps"] = "us"
        self.paused = PausedTime()
        self.source: dict[str, Any] = {}
        self.steps: list[Step] = []
        self._requests: dict[int, facts.Request] = {}

    @classmethod
    def of(cls, log: EventLog) -> Self:
        """Return the records of a whole log."""
        known, records = known_of(log, facts.Finished, facts.Request), cls()
        records.add(known)
        infer_others_prefill(records.steps)
        return records

    @property
    def labels(self) -> dict[int, str]:
        """The label of each request."""
        return {one.id: one.label for one in self._requests.values()}

    def add(self, known: Known) -> None:
        """Add the steps and the requests that are known."""
        self.unit, self.paused, self.source = known.unit, known.paused, known.run.source
        for done in known.finished:
            self._add_steps(done)
        self._requests |= {one.id: one for one in known.requests}

    def forget(self, request: int) -> None:
        """Forget a request."""
        del self._requests[request]

    def _add_steps(self, done: facts.Finished) -> None:
        for i, number in enumerate(done.number):
            at, blocked = len(self.steps), done.blocked[i]
            times: list[Any] = [at, at, at + 1, at + 1]
            if self.unit == "us":
                times = [done.begin[i], done.launched[i], done.ready[i], done.end[i]]
            step = Step(number, *times)
            step.decodes, step.prefills = done.decodes[i], done.prefills[i]
            step.blocked = (blocked.request, blocked.reason) if blocked else None
            step.skipped, step.is_failed = dict(done.skipped[i]), done.failed[i]
            step.is_after_gap = done.is_after_gap[i]
            self.steps.append(step)

    def life(self, request: int) -> Life | None:
        """Return what is known of a request; None: the log does not have it."""
        known = self._requests.get(request)
        if known is None:
            return None
        arrived: Any = known.arrived_at if self.unit == "us" else known.begins_at
        life = Life(
            id=known.id,
            label=known.label,
            prompt_tokens=known.prompt_length,
            arrived=None if known.arrived is None else arrived,
            examined=known.examined,
            begins_at=known.begins_at,
            ends_at=known.ends_at,
            first_token=known.first_token,
            short=known.shortfall,
            output_tokens=len(known.token_steps),
        )
        if known.forked is not None:
            life.forked, life.parent = known.forked
        if known.finished is not None:
            life.reason = known.finished[1]
        if known.admitted is not None:
            life.admitted, found, tokens, replica = known.admitted
            life.adopted = tokens, replica
            life.found = found if life.admitted else None  # else before the log begins
        for one in (*known.before, *known.segments):
            if one.kind in _ROWS and one.end is not None:
                work = _work(one)
                life.work.update((step, work) for step in range(one.begin, one.end + 1))
            elif one.kind == "preempted":
                until = None if one.end is None else one.end + 1
                last = life.absences[-1] if life.absences else None
                if last is not None and not last.begin and last.end == one.begin:
                    last.end = until  # it began before the log does
                else:
                    life.absences.append(Absence(one.begin, one.by, until))
        return life


def _work(row: facts.Segment) -> Work:
    is_decode = row.kind == "decode"
    in_vain = row.wasted not in ("", "ended")
    if is_decode and not (row.recomputed or in_vain):
        return DECODE
    new = (1 if is_decode else row.count) - row.recomputed
    is_prefill = not (row.reaches_output or (is_decode and new))
    return Work(row.recomputed, new, is_prefill, is_decode, in_vain)


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
