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

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from visualizer.reading.waterfall.causes import FOR_ALL
from visualizer.reading.waterfall.records import Life, Records, Step, StepTable, Work

_Intervals = list[tuple[int, int]]


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
    for index in _tiles(records, life):
        step, start = records.steps[index], _start(records, life, index)
        if start < step.end:
            spans += _joined(_tile(records.paused.intervals, life, step, start))
    return spans


def total_of(records: Records, life: Life) -> int:
    """Return what the spans of a request add up to, without making them; see `Records.outlines`."""
    steps, tiles = records.steps, _tiles(records, life)
    last = next((at for at in reversed(tiles) if _start(records, life, at) < steps[at].end), None)
    if last is None:
        return 0
    starts = ((_start(records, life, at), steps[at].end) for at in tiles)
    return steps[last].end - next(start for start, end in starts if start < end)


def _tiles(records: Records, life: Life) -> range:
    """Return the indexes of the steps from the arrival of a request to its end."""
    count = len(records.steps)
    end = count if life.ends_at is None else min(life.ends_at, count)
    return range(_first_tile(records.steps, life), end)


def _start(records: Records, life: Life, index: int) -> int:
    """Return when the part of a step's tile begins that belongs to a request."""
    if life.arrived is None and not index:
        return min(records.steps[0].begin, records.steps[0].launched)
    before = records.steps[index - 1].end if index else 0
    return before if life.arrived is None else max(before, life.arrived)


def _joined(parts: Iterable[Span]) -> list[Span]:
    """Join the parts of a tile that have one cause, and drop the empty ones."""
    spans: list[Span] = []
    for part in parts:
        if part.end <= part.start:
            continue
        if spans and (spans[-1].cause, spans[-1].about) == (part.cause, part.about):
            spans[-1] = spans[-1]._replace(end=part.end)
        else:
            spans.append(part)
    return spans


def _first_tile(steps: list[Step] | StepTable, life: Life) -> int:
    """Return the index of the first step that ends after its arrival.

    A request may have been sent before a step ended that the log has before its arrival.
    """
    index = life.begins_at
    while life.arrived is not None and index and steps[index - 1].end > life.arrived:
        index -= 1
    return index


def _tile(paused: _Intervals, life: Life, step: Step, start: int) -> Iterator[Span]:
    if step.is_after_gap and start < step.begin:
        yield Span(start, step.begin, "unknown", step.number)
        start = step.begin
    work = life.work.get(step.number)
    launched, ready = (max(start, time) for time in (step.launched, step.ready))
    outside = [(start, launched), (ready, step.end)]
    computes = work is not None and not work.in_vain
    cause, about = ("between_passes", None) if computes else _absent(life, step)
    for number, (begin, end) in enumerate(outside):
        for lo, hi, is_paused in _cut(paused, begin, end):
            if is_paused:
                yield Span(lo, hi, "paused", step.number)
            else:
                yield Span(lo, hi, cause, step.number, about)
        if number == 0 and computes:
            assert work is not None
            yield from _computed(work, step, launched, ready)
        elif number == 0:
            yield Span(launched, ready, cause, step.number, about)


def _cut(paused: _Intervals, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the parts of a time, and whether the engine was paused in them."""
    if start >= end:
        return
    at = start
    for begin, until in paused:
        lo, hi = max(at, begin), min(end, until)
        if lo < hi:
            yield at, lo, False
            yield lo, hi, True
            at = hi
    yield at, end, False


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


def _absent(life: Life, step: Step) -> tuple[str, int | None]:
    """Return why a request has no row in a step, and which request that is about."""
    for absence in life.absences:
        if absence.begin <= step.number and (absence.end is None or step.number < absence.end):
            return "preempted", absence.by
    if step.number < life.examined:
        return "step_in_progress", None
    request = life.id
    if life.parent is not None and step.number <= life.forked:
        request = life.parent
    if request in step.skipped:
        return step.skipped[request], None
    if step.is_failed or step.number in life.work:
        return "failed_step", None
    is_admitted = life.admitted is not None and life.admitted <= step.number
    if step.blocked is None or is_admitted:
        return "unknown", None
    head, reason = step.blocked
    return reason, None if head == request or reason in FOR_ALL else head
