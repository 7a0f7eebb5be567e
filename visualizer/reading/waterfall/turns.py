"""How long requests that wait do so behind each head of the queue."""

from array import array
from bisect import bisect_left, bisect_right

_NONE = -1  # head of an empty queue


class Turns:
    """The heads of the queue in some successive steps; a turn is the steps that one is the head of.

    first  index of the first step
    """

    def __init__(self, first: int = 0) -> None:
        self._first = first
        # The time that a request waits behind others in all steps before each, and before the next one.
        self._sums = array("q", [0])
        self._begins, self._heads = array("q", [first]), array("q", [_NONE])  # of each turn
        self._window, self._times = range(0), dict[int, int]()  # some turns, and their time by head

    def add(self, head: int | None, time: float) -> None:
        """Add the step that follows, in which a request waits behind a head for some time."""
        if head not in (None, self._heads[-1]):
            self._begins.append(self._first + len(self._sums) - 1)
            self._heads.append(head)
        self._sums.append(self._sums[-1] + round(time))
        self._window = range(0)

    def times(self, steps: range) -> dict[int, int]:
        """Return how long a request waits behind each head in the steps of these indexes."""
        first = bisect_right(self._begins, steps.start) - 1
        last = bisect_left(self._begins, steps.stop) - 1
        self._slide(range(first, last + 1))
        times = self._times.copy()
        _add(
            times, self._heads[first], self._before(self._begins[first]) - self._before(steps.start)
        )
        _add(times, self._heads[last], self._before(steps.stop) - self._before(self._end_of(last)))
        return times

    def keep(self, first: int, end: int) -> None:
        """Forget the steps before an index, and those from another one on."""
        del self._sums[end - self._first + 1 :], self._sums[: first - self._first]
        high, low = bisect_left(self._begins, end), bisect_right(self._begins, first) - 1
        for turns in (self._begins, self._heads):
            del turns[high:], turns[:low]
        self._first = self._begins[0] = first
        self._window = range(0)

    def _slide(self, window: range) -> None:
        """Set the window: requests that end one after the other waited in nearly the same turns."""
        old, self._window = self._window, window
        if not old or len(window) < abs(window.start - old.start) + abs(window.stop - old.stop):
            self._times.clear()
            old = range(window.start, window.start)
        for turns, sign in (
            (range(window.start, old.start), 1),
            (range(old.stop, window.stop), 1),
            (range(old.start, window.start), -1),
            (range(window.stop, old.stop), -1),
        ):
            for turn in turns:
                time = self._before(self._end_of(turn)) - self._before(self._begins[turn])
                _add(self._times, self._heads[turn], sign * time)

    def _end_of(self, turn: int) -> int:
        is_last = turn + 1 == len(self._begins)
        return self._first + len(self._sums) - 1 if is_last else self._begins[turn + 1]

    def _before(self, index: int) -> int:
        return self._sums[index - self._first]


def _add(times: dict[int, int], head: int, time: int) -> None:
    times[head] = times.get(head, 0) + time
    if not times[head]:
        del times[head]
