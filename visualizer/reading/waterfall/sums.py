"""The time of many successive steps, for requests that do one thing in all of them.

A request may wait in a hundred thousand steps, and thousands of requests in each of them, but their
tiles are the same: so each step is looked at once for all who wait in it. What its steps up to an index
add up to is kept, and a difference of two such sums is the time of a request that waits in between.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Literal

from visualizer.reading.waterfall.records import DECODE, Records, Step, Work, as_time
from visualizer.reading.waterfall.spans import Reason, tile_of, waits_in
from visualizer.reading.waterfall.turns import Turns

# Waits to be admitted; is admitted and has no row; has no row for a reason of its own; only decodes.
Doing = Literal["waits", "stalls", "absent", "decodes"]
ABSENT = "absent"  # instead of that reason
_ANY = -1  # stands for a request that is never the head of the queue
_DONE: dict[Doing, Callable[[Step], Work | Reason]] = {
    "waits": lambda step: waits_in(step, _ANY),
    "stalls": lambda step: waits_in(step, None),
    "absent": lambda _: (ABSENT, None),
    "decodes": lambda _: DECODE,
}


class Sums:
    """The sums of a log's steps, made when they are asked for.

    records  of the log
    tiles    the steps that are asked about; None: any
    """

    def __init__(self, records: Records, tiles: range | None = None) -> None:
        self.records, self._tiles = records, tiles
        self._skips: dict[int, array[int]] = {}  # by request, the indexes of the steps
        first = tiles.start if tiles else 0
        self._tables = {doing: _Table(records, done, first) for doing, done in _DONE.items()}
        self._end = first  # index of the first step that `_skips` lacks

    def skips(self, request: int) -> Sequence[int]:
        """Return the indexes of the steps that gave a request no tokens for a reason of its own."""
        steps = self.records.steps
        end = self._tiles.stop if self._tiles else len(steps)
        for index in range(self._end, end):
            for skipped in steps[index].skipped:
                self._skips.setdefault(skipped, array("q")).append(index)
        self._end = end
        return self._skips.get(request, ())

    def between(self, doing: Doing, tiles: range) -> dict[str, int]:
        """Return the time by cause of a request in the tiles of some steps, without causes of none."""
        return self._tables[doing].between(tiles)

    def heads(self, tiles: range) -> dict[int, int]:
        """Return how long a request that `waits` does so behind each head of the queue."""
        return self._tables["waits"].heads(tiles)

    def keep(self, first: int, end: int) -> None:
        """Forget the steps before an index; those after `end` are looked at again."""
        for table in self._tables.values():
            table.keep(first, end)
        self._skips = {id_: some for id_, some in self._skips.items() if some[-1] >= first}


class _Table:
    """The sums for one thing that a request may do.

    done  what it does in a step
    """

    def __init__(self, records: Records, done: Callable[[Step], Work | Reason], first: int) -> None:
        self._records, self._done = records, done
        self._begin(first)

    def _begin(self, index: int) -> None:
        """Begin with the step of an index."""
        self._first = self._end = index  # indexes of the steps that are summed up
        self._sums: dict[str, array[float]] = {}  # by cause; an entry more than steps
        self._turns = Turns(index)

    def between(self, tiles: range) -> dict[str, int]:
        """See `Sums`."""
        self._grow(tiles.stop)
        low, high = tiles.start - self._first, tiles.stop - self._first
        times = ((cause, column[high] - column[low]) for cause, column in self._sums.items())
        return {cause: as_time(time) for cause, time in times if time}

    def heads(self, tiles: range) -> dict[int, int]:
        """See `Sums`."""
        self._grow(tiles.stop)
        return self._turns.times(tiles)

    def keep(self, first: int, end: int) -> None:
        """See `Sums`."""
        end = min(self._end, end)
        if first >= end:
            self._begin(first)
            return
        for column in self._sums.values():
            del column[end - self._first + 1 :], column[: first - self._first]
        self._turns.keep(first, end)
        self._first, self._end = first, end

    def _grow(self, end: int) -> None:
        """Sum up the steps up to an index."""
        steps = self._records.steps
        for index in range(self._end, end):
            times, step = dict.fromkeys(self._sums, 0), steps[index]
            head, behind = None, 0
            # The first step of a log has no step before it, so it is told by itself.
            before = steps[index - 1].end if index else step.end
            tile = tile_of(self._records, step, before, self._done(step))
            for span in tile if before < step.end else ():
                times[span.cause] = times.get(span.cause, 0) + span.duration
                if span.about is not None:
                    head, behind = span.about, behind + span.duration
            for cause, time in times.items():
                if cause not in self._sums:
                    self._sums[cause] = array("d", bytes(8 * (index - self._first + 1)))
                column = self._sums[cause]
                column.append(column[-1] + time)
            self._turns.add(head, behind)
        self._end = max(self._end, end)
