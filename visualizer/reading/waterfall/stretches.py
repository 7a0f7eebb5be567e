"""Cut a request's time into stretches, in each of which it does one thing: it waits, or it decodes.

A stretch has the time by cause of its spans without making them, so it costs the same for one step and
for a hundred thousand.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from visualizer.reading.waterfall.records import DECODE, Life, Step, Work
from visualizer.reading.waterfall.spans import (
    Reason,
    Span,
    done_in,
    id_in,
    start_of,
    tile_of,
    tiles_of,
)
from visualizer.reading.waterfall.sums import ABSENT, Doing, Sums


@dataclass(slots=True)
class Stretch:
    """Successive steps of a request. Times are in the waterfall's unit, since the run started.

    start, end   when its first span starts, and when its last one ends
    first, last  the steps
    has_row      whether the request has a row in each of them, or in none
    is_away      whether it was preempted and has not resumed
    causes       time by cause; the values add up to its length
    about        time by request; see `Span.about`
    """

    start: int
    end: int
    first: int
    last: int
    has_row: bool
    is_away: bool
    causes: dict[str, int]
    about: dict[int, int]


def stretches_of(sums: Sums, life: Life) -> Iterator[Stretch]:
    """Yield the stretches of a request, in order and without a gap. Its first token ends one."""
    records, steps = sums.records, sums.records.steps
    tiles, rows, turns = tiles_of(records, life), sorted(life.work), _turns(sums, life)
    index = tiles.start
    while index < tiles.stop:
        step, start = steps[index], start_of(records, life, index)
        if start >= step.end:
            index += 1
            continue
        done, last = done_in(step, life), index
        doing = _doing(step, life, done)
        if doing is None or not index or start > steps[index - 1].end:
            causes, about = _added(tile_of(records, step, start, done))
        else:
            turn = bisect_right(turns, index)
            end = min(tiles.stop, *turns[turn : turn + 1], _next_row(sums, life, rows, step))
            causes, about = _summed(sums, id_in(step, life), doing, done, range(index, end))
            last = end - 1
            while steps[last].end <= steps[last - 1].end:  # it takes no time
                last -= 1
        yield Stretch(
            start,
            steps[last].end,
            step.number,
            steps[last].number,
            has_row=step.number in life.work,
            is_away=done[0] == "preempted" if isinstance(done, tuple) else False,
            causes=causes,
            about=about,
        )
        index = last + 1


def _turns(sums: Sums, life: Life) -> list[int]:
    """Return the indexes of the steps from which on a request without a row may do another thing."""
    numbers = [life.examined, life.forked + 1]
    if life.admitted is not None:
        numbers.append(life.admitted)
    for absence in life.absences:
        numbers += [absence.begin, *([] if absence.end is None else [absence.end])]
    turns = [sums.records.steps.index_of(number) for number in numbers]
    if life.first_token is not None:
        turns.append(life.first_token + 1)
    for request in {life.id, life.id if life.parent is None else life.parent}:
        turns += [turn for index in sums.skips(request) for turn in (index, index + 1)]
    return sorted(turns)


def _doing(step: Step, life: Life, done: Work | Reason) -> Doing | None:
    """Return what a request does, in this step as in others; None: nothing of the kind."""
    if isinstance(done, Work):
        return "decodes" if done is DECODE else None
    if done[0] in ("preempted", "step_in_progress"):
        return "absent"
    if step.number in life.work or id_in(step, life) in step.skipped:
        return None
    is_admitted = life.admitted is not None and life.admitted <= step.number
    return "stalls" if is_admitted else "waits"


def _next_row(sums: Sums, life: Life, rows: Sequence[int], step: Step) -> int:
    """Return the index of the step in which a request no longer decodes as in this one, or has a row.

    rows  the steps in which it has a row, in order
    """
    at = bisect_left(rows, step.number)
    if step.number in life.work:
        while life.work.get(rows[at] + 1) is DECODE:
            at += 1
        return sums.records.steps.index_of(rows[at] + 1)
    return sums.records.steps.index_of(rows[at]) if at < len(rows) else len(sums.records.steps)


def _added(spans: Sequence[Span]) -> tuple[dict[str, int], dict[int, int]]:
    """Return the time of some spans by cause, and by the request that it is about."""
    causes, about = Counter[str](), Counter[int]()
    for span in spans:
        causes[span.cause] += span.duration
        if span.about is not None:
            about[span.about] += span.duration
    return causes, about


def _summed(
    sums: Sums, request: int, doing: Doing, done: Work | Reason, tiles: range
) -> tuple[dict[str, int], dict[int, int]]:
    """Return the same of some whole tiles."""
    causes = sums.between(doing, tiles)
    if isinstance(done, Work) or doing == "stalls":
        return causes, {}
    if doing == "waits":
        about = sums.heads(tiles)
        about.pop(request, None)
        return causes, about
    cause, by = done
    time = causes.pop(ABSENT, 0)
    causes |= {cause: time}
    return causes, {} if by is None else {by: time}
