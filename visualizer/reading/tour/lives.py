"""When the steps of a log ran and how long its requests waited: its events are not needed for that."""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import MutableSequence

from visualizer.indexed.facts import Request
from visualizer.indexed.known import Known
from visualizer.reading.busy_time import BusyTime
from visualizer.reading.tour.happenings import Loss


class Times:
    """When the finished steps of a log began and ended.

    last_step  the last one that has times; None if none has
    """

    def __init__(self, known: Known, numbers: MutableSequence[int]) -> None:
        self.last_step: int | None = None
        self._busy, self._in_steps = BusyTime(), known.unit == "steps"
        self._numbers, self._begins = numbers, array("q")
        for done in known.finished:
            for number, begin, end in zip(done.number, done.begin, done.end, strict=True):
                self._begins.append(int(begin or 0))
                if begin is not None and end is not None:
                    self.last_step = number
                    self._busy.add(int(begin), int(end))

    @property
    def end(self) -> int:
        """When the last step ended."""
        return self._busy.end

    def begin(self, step: int) -> int | None:
        """Return when a step began; None: it has not finished."""
        at = bisect_left(self._numbers, step)
        is_finished = at < len(self._numbers) and self._numbers[at] == step
        return self._begins[at] if is_finished else None

    def between(self, begin: int, end: int) -> int:
        """Return the busy time between two instants."""
        return max(0, self._busy.until(end) - self._busy.until(begin))

    def absence(self, loss: Loss) -> tuple[int, int] | None:
        """Return from when to when a victim was away; None: it has not returned or is without times."""
        if loss.resumed is None or self._in_steps:
            return None
        begin, end = self.begin(loss.step), self.begin(loss.resumed)
        return None if begin is None or end is None else (begin, end)

    def away(self, loss: Loss) -> int:
        """Return how long a victim was away; without times, for how many steps."""
        absence = self.absence(loss)
        if absence is None:
            return 0 if loss.resumed is None else loss.resumed - loss.step
        return self.between(*absence)


class Lives:
    """The requests of a log from their arrival to their end, samples that forked off left out.

    count    how many there are
    whole    those that arrived, got a first token and ended in the log
    last     the one that ended last, by stop or length; None if none did
    longest  the one that waited longest to be admitted, or does so when the log ends, and how long;
             without times, in how many steps
    """

    def __init__(self, known: Known, times: Times) -> None:
        self._known, self._times = known, times
        self.count, self.whole = 0, set[int]()
        self.last: Request | None = None
        self.longest: tuple[Request, int] | None = None
        in_steps, most, latest = known.unit == "steps", (0, 0), (0, 0)
        for one in known.each_request():
            if one.forked is not None:
                continue
            self.count += 1
            arrives = one.arrived is not None and (in_steps or one.arrived_at is not None)
            if one.finished is not None and one.finished[1] in ("stop", "length"):
                if arrives and one.first_token is not None:
                    self.whole.add(one.id)
                if (ended := (one.finished[0], one.id)) > latest:
                    self.last, latest = one, ended
            if arrives and (one.admitted is not None or one.finished is None):
                begin, end = self.seen(one) if in_steps else self.wait(one)
                wait = end - begin if in_steps else times.between(begin, end)
                if (wait, -one.index) > most:
                    self.longest, most = (one, wait), (wait, -one.index)

    def wait(self, one: Request) -> tuple[int, int]:
        """Return from when to when a request waited to be admitted, or until the log ends."""
        until = None if one.admitted is None else self._times.begin(one.admitted[0])
        return int(one.arrived_at or 0), self._times.end if until is None else until

    def seen(self, one: Request) -> tuple[int, int]:
        """Return how many steps were scheduled before it arrived, and before it was admitted."""
        steps = self._known.scheduled
        until = len(steps) if one.admitted is None else steps.count_before(one.admitted[0])
        return steps.count_before(one.examined), until

    def reasons(self, one: Request) -> Counter[str]:
        """Return in how many steps the front of the queue waited for what while a request waited.

        Steps in which it was admitted count for "".
        """
        begin, end = self.seen(one)
        reasons, at = Counter[str](), 0
        for some in self._known.steps:
            for scheduled, blocked in zip(some.scheduled, some.blocked, strict=True):
                if scheduled is not None:
                    reasons[blocked.reason if blocked else ""] += begin <= at < end
                    at += 1
        return +reasons
