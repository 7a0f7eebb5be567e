"""The busy time of a run: that in which its steps ran, without pauses and time without a request."""

from array import array
from bisect import bisect_right

from engine.core.log import EventLog
from engine.core.log import vocabulary as v


def busy_us(log: EventLog) -> tuple[int, int]:
    """Return the time in which steps ran, and that from the first step to the last one's end, in us.

    Asynchronous steps overlap, and an instant at which two of them ran counts once.
    """
    busy, start = BusyTime(), None
    for event in log.each(v.StepFinished):
        if "start" in event.t:
            busy.add(event.t["start"], event.t["end"])
            start = event.t["start"] if start is None else start
    return busy.until(busy.end), busy.end - (start or 0)


class BusyTime:
    """When steps ran, collected in their order: the busy time between two instants."""

    def __init__(self) -> None:
        self._ends = array("q")  # of steps
        self._sums = array("q")  # busy time up to each of these ends

    def add(self, start: int, end: int) -> None:
        """Add when the next step began and ended."""
        before = self.end
        if end > before:
            self._sums.append(self.until(before) + end - max(start, before))
            self._ends.append(end)

    @property
    def end(self) -> int:
        """The end of the last step."""
        return self._ends[-1] if self._ends else 0

    def until(self, instant: int) -> int:
        """Return the busy time before an instant."""
        at = bisect_right(self._ends, instant)
        before = self._sums[at - 1] if at else 0
        if at == len(self._ends):
            return before
        whole = self._sums[at] - before
        return before + max(0, whole - (self._ends[at] - instant))
