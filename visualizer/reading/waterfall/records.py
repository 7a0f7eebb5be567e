"""What each step of a log took and what each request did in it: from the facts that an index has."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from statistics import median_low
from typing import Any, Literal, Self

from engine.core.log import EventLog
from engine.simulation.latencies import PausedTime
from visualizer.indexed import facts
from visualizer.indexed.known import IndexedKnown, Known, known_of

_ROWS = {"prefill", "catchup", "decode"}
_KEPT = 10_000  # steps as objects, because requests that are asked about have many in common
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


class LatestSteps:
    """The last steps of a log that grows, by their indexes among all.

    first  index of the first one that is kept
    """

    def __init__(self) -> None:
        self.first, self._kept = 0, list[Step]()

    @property
    def first_timed(self) -> int:
        """Index of the first step of which it is known when it could begin."""
        return self.first and self.first + 1

    def __len__(self) -> int:
        return self.first + len(self._kept)

    def __getitem__(self, index: int) -> Step:
        return self._kept[index - self.first]

    def append(self, step: Step) -> None:
        """Add the next step."""
        self._kept.append(step)

    def index_of(self, number: int) -> int:
        """Return the index of the first step with this number, or a larger one."""
        return bisect_left(self, number, self.first, key=lambda step: step.number)

    def since(self, index: int) -> list[Step]:
        """The steps from an index on, as far as they are kept."""
        return self._kept[max(0, index - self.first) :]

    def drop(self, index: int) -> None:
        """Forget the steps before an index."""
        if index > self.first:
            del self._kept[: index - self.first]
            self.first = index


class StepTable:
    """The steps of a whole log, or of a part of it, as columns: an object each would be too many.

    unit    "us", or "steps" for a log without times
    before  how many steps come before
    others  returns `Step.others_prefill` by the index in the log; None: the whole log is here
    """

    first = first_timed = 0

    def __init__(
        self, unit: str, before: int = 0, others: Callable[[int], Any] | None = None
    ) -> None:
        self._before, self._others_of = before, others
        self._is_timed = unit == "us"
        self._number = array("q")
        self._begin, self._launched, self._ready, self._end = (array("d") for _ in range(4))
        self._decodes, self._prefills = array("i"), array("i")
        self._failed, self._after_gap = bytearray(), bytearray()
        self._head, self._reason = array("i"), array("h")  # -1: no request was blocked
        self._reasons: dict[str, int] = {}
        self._skipped: dict[int, list[tuple[int, str]]] = {}
        self._step = lru_cache(_KEPT)(self.made)

    def __len__(self) -> int:
        return len(self._number)

    def __getitem__(self, index: int) -> Step:
        return self._step(index if index >= 0 else index + len(self))

    def index_of(self, number: int) -> int:
        """See `LatestSteps`."""
        return bisect_left(self._number, number)

    def add(self, done: facts.Finished) -> None:
        """Add some successive steps."""
        first, reasons = len(self), self._reasons
        self._number.extend(done.number)
        if self._is_timed:
            for name in ("begin", "launched", "ready", "end"):
                getattr(self, f"_{name}").extend(getattr(done, name))
        self._decodes.extend(done.decodes)
        self._prefills.extend(done.prefills)
        self._failed.extend(done.failed)
        self._after_gap.extend(done.is_after_gap)
        self._head.extend(-1 if one is None else one.request for one in done.blocked)
        self._reason.extend(
            -1 if one is None else reasons.setdefault(one.reason, len(reasons))
            for one in done.blocked
        )
        self._skipped |= {first + at: one for at, one in enumerate(done.skipped) if one}

    def number(self, index: int) -> int:
        """Return the number of a step."""
        return self._number[index]

    def took(self, index: int) -> Any:
        """Return how long the pass of a step took."""
        return self._ready[index] - self._launched[index]

    def rows(self, index: int) -> tuple[int, int]:
        """Return how many requests decode in a step, and how many compute more."""
        return self._decodes[index], self._prefills[index]

    @cached_property
    def others(self) -> "OthersPrefill":
        """What the steps here tell about each other."""
        return OthersPrefill(self._decodes, self._prefills, self._failed, self.took)

    def made(self, index: int) -> Step:
        """Make a step of its columns."""
        at = self._before + index
        times: list[Any] = [at, at, at + 1, at + 1]
        if self._is_timed:
            columns = self._begin, self._launched, self._ready, self._end
            times = [as_time(column[index]) for column in columns]
        begin, launched, ready, end = times
        others = self._others_of or self.others.of
        blocked = None
        if self._reason[index] >= 0:
            blocked = self._head[index], [*self._reasons][self._reason[index]]
        return Step(
            self._number[index],
            begin,
            launched,
            ready,
            end,
            decodes=self._decodes[index],
            prefills=self._prefills[index],
            others_prefill=as_time(others(at)) if self._is_timed else 0,
            blocked=blocked,
            skipped=dict(self._skipped.get(index, ())),
            is_failed=bool(self._failed[index]),
            is_after_gap=bool(self._after_gap[index]),
        )


class StepParts:
    """The steps of an index; each part is read when it is first asked about."""

    first = first_timed = 0

    def __init__(self, known: IndexedKnown) -> None:
        self._known = known
        self._ends = [one.finished for one in known.extents]
        # The parts with steps that only decode, by the number of requests in them.
        self._having: dict[int, list[int]] = {}
        for number, one in enumerate(known.extents):
            for size in one.sizes:
                self._having.setdefault(size, []).append(number)
        self._parts: dict[int, StepTable] = {}
        self._step = lru_cache(_KEPT)(self._made)  # of all parts together

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Step:
        return self._step(index if index >= 0 else index + len(self))

    def _made(self, index: int) -> Step:
        number, first = self._place(index)
        return self._part(number).made(index - first)

    def index_of(self, number: int) -> int:
        """See `LatestSteps`."""
        return bisect_left(range(len(self)), number, key=self._number)

    def _number(self, index: int) -> int:
        number, first = self._place(index)
        return self._part(number).number(index - first)

    def _place(self, index: int) -> tuple[int, int]:
        """Return the part of a step, and how many steps come before that part."""
        number = bisect_right(self._ends, index)
        return number, self._ends[number - 1] if number else 0

    def _part(self, number: int) -> StepTable:
        if number not in self._parts:
            first = self._ends[number - 1] if number else 0
            table = self._parts[number] = StepTable(self._known.unit, first, self._others_prefill)
            for done in self._known.finished_in(number):
                table.add(done)
        return self._parts[number]

    def _others_prefill(self, index: int) -> Any:
        """Do what `OthersPrefill` does, with the parts that have steps to compare with."""
        number, first = self._place(index)
        own, prefills = self._part(number).rows(index - first)
        if not (own and prefills and self._having):
            return 0
        size = min(self._having, key=lambda decodes: (abs(decodes - own), -decodes))
        having, near = self._having[size], list[Any]()
        middle = bisect_left(having, number)
        for one in reversed(having[max(0, middle - _NEIGHBOURS) : middle + 1]):
            table, at = self._alone(one, size, index)
            before = table.others.alone(size)[:at]
            near += map(table.took, before[max(0, len(before) - _NEIGHBOURS + len(near)) :])
        end = len(near) + _NEIGHBOURS
        for one in having[middle : middle + _NEIGHBOURS + 1]:
            table, at = self._alone(one, size, index)
            near += map(table.took, table.others.alone(size)[at : at + end - len(near)])
        return max(0, self._part(number).took(index - first) - median_low(near))

    def _alone(self, number: int, size: int, index: int) -> tuple[StepTable, int]:
        """Return a part, and how many steps with only so many decodes it has before a step."""
        table, first = self._part(number), self._ends[number - 1] if number else 0
        return table, bisect_left(table.others.alone(size), index - first)


def as_time(value: float) -> Any:
    """Return a time from an array of floats; it is an integer in most logs."""
    return int(value) if value == int(value) else value


DECODE = Work(0, 1, is_prefill=False, is_decode=True)


Steps = LatestSteps | StepTable | StepParts


class Records:
    """The finished steps, paused times and requests of a log.

    unit    "us", or "steps" if the log was saved without times: then each step takes 1
    source  of the log, as in run_started
    """

    def __init__(self) -> None:
        self.unit: Literal["us", "steps"] = "us"
        self.paused = PausedTime()
        self.source: dict[str, Any] = {}
        self.steps: Steps = LatestSteps()
        self.known: Known | None = None  # of a whole log
        self._requests: dict[int, facts.Request] = {}

    @classmethod
    def of(cls, log: EventLog) -> Self:
        """Return the records of a whole log."""
        known, records = known_of(log), cls()
        if isinstance(known, IndexedKnown):
            records.steps = StepParts(known)
        else:
            records.steps = StepTable(known.unit)
        records._add_run(known)
        records.known = known
        return records

    @property
    def labels(self) -> Mapping[int, str]:
        """The label of each request."""
        if self.known is not None:
            return self.known.own_labels
        return {one.id: one.label for one in self._requests.values()}

    def add(self, known: Known) -> None:
        """Add the steps and the requests that are known."""
        self._add_run(known)
        self._requests |= {one.id: one for one in known.each_request()}

    def _add_run(self, known: Known) -> None:
        self.unit, self.paused, self.source = known.unit, known.paused, known.run.source
        if isinstance(self.steps, StepParts):
            return
        for done in known.finished:
            if isinstance(self.steps, StepTable):
                self.steps.add(done)
            else:
                self._add_steps(done, self.steps)

    def forget(self, request: int) -> None:
        """Forget a request."""
        del self._requests[request]

    def _add_steps(self, done: facts.Finished, steps: LatestSteps) -> None:
        for i, number in enumerate(done.number):
            at, blocked = len(steps), done.blocked[i]
            times: list[Any] = [at, at, at + 1, at + 1]
            if self.unit == "us":
                times = [done.begin[i], done.launched[i], done.ready[i], done.end[i]]
            step = Step(number, *times)
            step.decodes, step.prefills = done.decodes[i], done.prefills[i]
            step.blocked = (blocked.request, blocked.reason) if blocked else None
            step.skipped, step.is_failed = dict(done.skipped[i]), done.failed[i]
            step.is_after_gap = done.is_after_gap[i]
            steps.append(step)

    def life(self, request: int) -> Life | None:
        """Return what is known of a request; None: the log does not have it."""
        known = self.known.request(request) if self.known else self._requests.get(request)
        return None if known is None else self.life_of(known)

    def lives(self) -> Iterator[Life]:
        """Yield what is known of each request of a whole log, in any order."""
        assert self.known is not None
        needed = self.known.each_request("segments", "before", "token_steps")
        return map(self.life_of, needed)

    def outlines(self) -> Iterator[Life]:
        """Yield the same without `work`, `absences` and `output_tokens`: much less is read for it."""
        assert self.known is not None
        return map(self._outline, self.known.each_request())

    def life_of(self, known: facts.Request) -> Life:
        """Return what is known of a request."""
        life = self._outline(known)
        life.output_tokens = len(known.token_steps)
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

    def _outline(self, known: facts.Request) -> Life:
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
        )
        if known.forked is not None:
            life.forked, life.parent = known.forked
        if known.finished is not None:
            life.reason = known.finished[1]
        if known.admitted is not None:
            life.admitted, found, tokens, replica = known.admitted
            life.adopted = tokens, replica
            life.found = found if life.admitted else None  # else before the log begins
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
    """Set what `OthersPrefill` finds."""
    decodes, prefills = [one.decodes for one in steps], [one.prefills for one in steps]
    took = lambda index: steps[index].ready - steps[index].launched  # noqa: E731
    others = OthersPrefill(decodes, prefills, [one.is_failed for one in steps], took)
    for index, step in enumerate(steps):
        step.others_prefill = others.of(index)


class OthersPrefill:
    """Compares a step that decodes and prefills with steps nearby that only decode.

    The steps to compare with only decode, and their number of decodes is closest to this step's (the
    larger one, if two are equally close): the last three before it and the first three after it. Their
    low median is what the decodes alone would have taken. Without such a step, nothing is inferred.
    `took` is how long the pass of a step took, by its index.
    """

    def __init__(
        self,
        decodes: Sequence[int],
        prefills: Sequence[int],
        failed: Sequence[int],
        took: Callable[[int], Any],
    ) -> None:
        self._decodes, self._prefills, self._took = decodes, prefills, took
        self._alone: dict[int, array[int]] = {}  # number of decodes -> indexes of steps
        self._nearest: dict[int, array[int]] = {}  # the same for a number that no step may have
        for index, (size, others, is_failed) in enumerate(
            zip(decodes, prefills, failed, strict=True)
        ):
            if size and not others and not is_failed:
                self._alone.setdefault(size, array("i")).append(index)

    def alone(self, size: int) -> "array[int]":
        """Return the indexes of the steps that only decode, for so many requests."""
        return self._alone.get(size) or array("i")

    def of(self, index: int) -> Any:
        """Return how much longer a step took."""
        own = self._decodes[index]
        if not (own and self._prefills[index] and self._alone):
            return 0
        if own not in self._nearest:
            size = min(self._alone, key=lambda decodes: (abs(decodes - own), -decodes))
            self._nearest[own] = self._alone[size]
        at = bisect_left(self._nearest[own], index)
        near = self._nearest[own][max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS]
        return max(0, self._took(index) - median_low(map(self._took, near)))
