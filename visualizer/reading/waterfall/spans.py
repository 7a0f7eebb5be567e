"""Cut a request's time into spans: ordered, without a gap, from its arrival to its end.

Each finished step has a tile of time: from the end of the step before to its own end. What the request
did in the step is the cause of the tile:

- It has a row. While the step's forward pass runs, it computes (`prefill`, `decode`, `recomputed`). A
  row of tokens that it had computed before and of new ones is cut in proportion to them. Of a decode,
  `others_prefill` is the last part. Before and after the pass is `between_passes`.
- It has none. The whole tile has the recorded reason, or is `preempted`.

Where messages of a foreign log are missing, the time up to the next step that it has is `unknown`.

`paused` is the time in which the engine was paused and no forward pass ran. With asynchronous
scheduling the next step is scheduled during a tile; a tile still is the time in which its own step was
computed.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from visualizer.reading.waterfall.causes import FOR_ALL
from visualizer.reading.waterfall.records import Life, Records, Step, Steps, Work

_Intervals = list[tuple[int, int]]
# Why a request has no row in a step, and which request that is about.
Reason = tuple[str, int | None]


class Span(NamedTuple):
    """A part of a request's time with one cause.

    start, end   time since the run started, in the waterfall's unit
    step         the step whose decision or forward pass it is
    about        waiting: the head of the queue that it waits behind; preempted: the request that needed
                 its blocks, possibly itself; else None
    """

    start: int
    end: int
    cause: str
    step: int
    about: int | None = None

    @property
    def duration(self) -> int:
        """Its length, in the waterfall's unit."""
        return self.end - self.start


def spans_of(records: Records, life: Life) -> list[Span]:
    """Return a request's spans, as far as the steps of the log have finished."""
    spans: list[Span] = []
    for index in tiles_of(records, life):
        step, start = records.steps[index], start_of(records, life, index)
        if start < step.end:
            spans += tile_of(records, step, start, done_in(step, life))
    return spans


def total_of(records: Records, life: Life) -> int:
    """Return what the spans of a request add up to, without making them; see `Records.outlines`."""
    steps, tiles = records.steps, tiles_of(records, life)
    last = next((at for at in reversed(tiles) if start_of(records, life, at) < steps[at].end), None)
    if last is None:
        return 0
    starts = ((start_of(records, life, at), steps[at].end) for at in tiles)
    return steps[last].end - next(start for start, end in starts if start < end)


def tiles_of(records: Records, life: Life) -> range:
    """Return the indexes of the steps from the arrival of a request to its end."""
    count = len(records.steps)
    end = count if life.ends_at is None else min(life.ends_at, count)
    return range(_first_tile(records.steps, life), end)


def start_of(records: Records, life: Life, index: int) -> int:
    """Return when the part of a step's tile begins that belongs to a request."""
    if life.arrived is None and not index:
        return min(records.steps[0].begin, records.steps[0].launched)
    before = records.steps[index - 1].end if index else 0
    return before if life.arrived is None else max(before, life.arrived)


def _first_tile(steps: Steps, life: Life) -> int:
    """Return the index of the first step that ends after its arrival.

    A request may have been sent before a step ended that the log has before its arrival.
    """
    index, first, arrived = life.begins_at, steps.first_timed, life.arrived
    while arrived is not None and index > first and steps[index - 1].end > arrived:
        index -= 1
    return index


def tile_of(records: Records, step: Step, start: int, done: Work | Reason) -> list[Span]:
    """Return the spans of a step's tile from a time on, without empty ones."""
    paused, spans = records.paused.intervals, list[Span]()
    if (
        isinstance(done, tuple)
        and not (paused or step.is_after_gap)
        and start <= step.launched <= step.ready <= step.end
    ):
        return [Span(start, step.end, done[0], step.number, done[1])]
    for part in _parts(paused, step, start, done):
        if part.end <= part.start:
            continue
        if spans and (spans[-1].cause, spans[-1].about) == (part.cause, part.about):
            spans[-1] = spans[-1]._replace(end=part.end)
        else:
            spans.append(part)
    return spans


def _parts(paused: _Intervals, step: Step, start: int, done: Work | Reason) -> Iterator[Span]:
    if step.is_after_gap and start < step.begin:
        yield Span(start, step.begin, "unknown", step.number)
        start = step.begin
    launched, ready = (max(start, time) for time in (step.launched, step.ready))
    cause, about = ("between_passes", None) if isinstance(done, Work) else done
    yield from _cut(paused, Span(start, launched, cause, step.number, about))
    if isinstance(done, Work):
        yield from _computed(done, step, launched, ready)
    else:
        yield Span(launched, ready, cause, step.number, about)
    yield from _cut(paused, Span(ready, step.end, cause, step.number, about))


def _cut(paused: _Intervals, span: Span) -> Iterator[Span]:
    """Cut the time in which the engine was paused out of a span."""
    at, end = span.start, span.end
    index = bisect_right(paused, at, key=lambda interval: interval[1])
    while index < len(paused) and paused[index][0] < end:
        begin, until = max(at, paused[index][0]), min(end, paused[index][1])
        yield span._replace(start=at, end=begin)
        yield Span(begin, until, "paused", span.step)
        at, index = until, index + 1
    yield span._replace(start=at)


def _computed(work: Work, step: Step, start: int, end: int) -> Iterator[Span]:
    middle = start + (end - start) * work.again // (work.again + work.new)
    yield Span(start, middle, "recomputed", step.number)
    if not work.is_decode:
        cause = "prefill" if work.is_prefill else "decode"
        yield Span(middle, end, cause, step.number)
        return
    cut = max(middle, end - step.others_prefill)
    yield Span(middle, cut, "decode", step.number)
    yield Span(cut, end, "others_prefill", step.number)


def done_in(step: Step, life: Life) -> Work | Reason:
    """Return the row of a request in a step; or why it has none, and which request that is about."""
    work = life.work.get(step.number)
    if work is not None and not work.in_vain:
        return work
    for absence in life.absences:
        if absence.begin <= step.number and (absence.end is None or step.number < absence.end):
            return "preempted", absence.by
    if step.number < life.examined:
        return "step_in_progress", None
    request = id_in(step, life)
    if request in step.skipped:
        return step.skipped[request], None
    if work is not None:
        return "failed_step", None
    is_admitted = life.admitted is not None and life.admitted <= step.number
    return waits_in(step, None if is_admitted else request)


def id_in(step: Step, life: Life) -> int:
    """Return the id that a request had in a step: its own, or before it forked off, its parent's."""
    return life.id if life.parent is None or step.number > life.forked else life.parent


def waits_in(step: Step, request: int | None) -> Reason:
    """Return what a request waits for in a step; None: one that the scheduler has admitted."""
    if step.is_failed:
        return "failed_step", None
    if step.blocked is None or request is None:
        return "unknown", None
    head, reason = step.blocked
    return reason, None if head == request or reason in FOR_ALL else head
