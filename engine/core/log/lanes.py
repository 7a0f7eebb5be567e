"""Lanes: the rows in which viewers draw the requests, and which decide their marks.

A request gets a lane when it is first admitted or forked and keeps it until it ends, even while
preempted. Lanes are part of the folded state and of a keyframe, so that all viewers of a run see the
same marks, however late they join. `visualizer/frontend/src/model/lanes.ts` is the same in TypeScript.
"""

from collections.abc import Iterable
from dataclasses import dataclass

MARKS = 30
_REST = 2  # steps
_NEVER = -_REST


@dataclass(slots=True)
class Lane:
    """One row.

    owner  the request that has it, None if it is free
    last   the step in which the last request left it
    label  the label of its owner or, without one, of the last
    """

    owner: int | None = None
    last: int = _NEVER
    label: str = ""


class Lanes:
    """The lanes of a run in one step, by number."""

    def __init__(self, plain: Iterable[tuple[int | None, int, str]] = ()) -> None:
        self._lanes = [Lane(*entry) for entry in plain]
        self._numbers = {
            lane.owner: number for number, lane in enumerate(self._lanes) if lane.owner is not None
        }

    def plain(self) -> list[tuple[int | None, int, str]]:
        """Return the lanes as in a keyframe: owner, last and label of each."""
        return [(lane.owner, lane.last, lane.label) for lane in self._lanes]

    def of(self, request: int) -> int | None:
        """Return the number of a request's lane, or None."""
        return self._numbers.get(request)

    def take(self, request: int, label: str, step: int, seats: int) -> None:
        """Give a request the best free lane; of several, the smallest.

        The best lane is the one that the label had last, if no other live request has the label: in a
        class, a student keeps a mark. Next is a lane whose mark no other request of this step has. Of
        those, one that has rested for two steps and is one of the first `seats` is better.
        """
        marks = {
            number % MARKS
            for number, lane in enumerate(self._lanes)
            if lane.owner is not None or lane.last == step
        }
        returns = label and all(lane.owner is None or lane.label != label for lane in self._lanes)

        def rank(number: int) -> tuple[int, int]:
            lane = self._lanes[number]
            is_distinct = number % MARKS not in marks
            if is_distinct and returns and lane.label == label:
                return 0, number
            has_rested = step - lane.last > _REST and number < seats
            return (1 if is_distinct else 3) + (not has_rested), number

        used = len(self._lanes)
        # Any further lane would have the mark of one of these.
        self._lanes += [Lane() for _ in range(MARKS)]
        free = (number for number, lane in enumerate(self._lanes) if lane.owner is None)
        best = min(free, key=rank)
        self._lanes[best] = Lane(request, label=label)
        self._numbers[request] = best
        del self._lanes[max(used, best + 1) :]

    def leave(self, request: int, step: int) -> None:
        """Free the lane of a request that ended in `step`."""
        number = self._numbers.pop(request, None)
        if number is not None:
            self._lanes[number] = Lane(None, step, self._lanes[number].label)
