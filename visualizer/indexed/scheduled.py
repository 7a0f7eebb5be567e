"""The steps that a scheduler planned: where each is in the log. Only the parts asked about are read."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from visualizer.indexed.extents import Extent
from visualizer.indexed.facts import Steps, Time
from visualizer.indexed.step_facts import TIMES

_KEPT = 64  # parts
NEEDED = frozenset({"step", "scheduled", "status", "times"})


@dataclass(slots=True)
class StepsPart:
    """Some steps, ascending: their numbers, indexes and times, and those that failed without a plan.

    times  when each was scheduled, and when it ended
    """

    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    indexes: "array[int]" = field(default_factory=lambda: array("q"))
    times: list[tuple[Time | None, Time | None]] = field(default_factory=list)
    abandoned: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, facts: Iterable[Steps], first: int) -> "StepsPart":
        """Return the steps of some facts; `first` is the number of the log's first event."""
        part = cls()
        for some in facts:
            scheduled, end = (some.times[TIMES.index(name)] for name in ("scheduled", "end"))
            rows = zip(some.step, some.scheduled, some.status, scheduled, end, strict=True)
            for number, seq, status, *times in rows:
                if seq is not None:
                    part.numbers.append(number)
                    part.indexes.append(seq - first)
                    part.times.append((times[0], times[1]))
                elif status == "finished":
                    part.abandoned.add(number)
        return part


class Scheduled(Mapping[int, int]):
    """The index of each step's step_scheduled in the log, both ascending.

    extents  of the parts of the facts
    read     returns the steps of a part
    """

    def __init__(self, extents: Sequence[Extent], read: Callable[[int], StepsPart]) -> None:
        self._lasts = [one.step for one in extents]
        self._counts = [0, *(one.scheduled for one in extents)]
        self._part = lru_cache(_KEPT)(read)

    @classmethod
    def of(cls, part: StepsPart) -> "Scheduled":
        """Return the steps of a whole log."""
        last = max([0, *part.numbers[-1:], *part.abandoned])
        return cls([Extent(step=last, scheduled=len(part.numbers))], lambda _number: part)

    def __len__(self) -> int:
        return self._counts[-1]

    def __iter__(self) -> Iterator[int]:
        for number in range(len(self._lasts)):
            yield from self._part(number).numbers

    def nth(self, count: int) -> tuple[int, int]:
        """Return the step that was scheduled after `count` others, and its index."""
        number = bisect_left(self._counts, count + 1) - 1
        part, at = self._part(number), count - self._counts[number]
        return part.numbers[at], part.indexes[at]

    def __getitem__(self, step: int) -> int:
        """Return the index of a step. Raises KeyError for one that was not scheduled."""
        part, at = self._place(step)
        return part.indexes[at]

    def times(self, step: int) -> tuple[Time | None, Time | None]:
        """Return when a step was scheduled and when it ended. Raises KeyError as above."""
        part, at = self._place(step)
        return part.times[at]

    def is_abandoned(self, step: int) -> bool:
        """Return whether a step failed before it was scheduled."""
        number = bisect_left(self._lasts, step)
        return number < len(self._lasts) and step in self._part(number).abandoned

    def count_before(self, step: int) -> int:
        """Return how many steps before this one were scheduled."""
        number = bisect_left(self._lasts, step)
        if number == len(self._lasts):
            return len(self)
        return self._counts[number] + bisect_left(self._part(number).numbers, step)

    def end_before(self, step: int) -> int:
        """Return the index after the last step before `step` was scheduled."""
        count = self.count_before(step)
        return self.nth(count - 1)[1] + 1 if count else 0

    def last_before(self, index: int) -> int | None:
        """Return the last step that was scheduled before an index into the log; None without one."""
        count = bisect_left(range(len(self)), index, key=lambda at: self.nth(at)[1])
        return self.nth(count - 1)[0] if count else None

    def _place(self, step: int) -> tuple[StepsPart, int]:
        number = bisect_left(self._lasts, step)
        if number < len(self._lasts):
            part = self._part(number)
            at = bisect_left(part.numbers, step)
            if at < len(part.numbers) and part.numbers[at] == step:
                return part, at
        raise KeyError(step)
