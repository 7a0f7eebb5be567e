"""The steps of a long log in which its requests waited most, as a log that can be replayed.

A replay takes time, and advice needs dozens, so only so many steps of a long log are replayed. They
begin at a moment when the engine had no request, if there was one shortly before, or else with the
requests, the queue and the cache of that moment. What requests wait before and after does not count.
"""

from array import array
from collections.abc import Iterator
from itertools import accumulate, islice
from operator import add

from engine.core.log.log import EventLog
from engine.simulation.measures import FEWEST_FOR_P99
from visualizer.advice.goal import Goal
from visualizer.indexed.known import Known, known_of
from visualizer.indexed.part import replayed_part

STEPS = 6000
_UNTIL_FIRST = ("ttft", "queue")
_BETWEEN_TOKENS = ("itl", "tpot")


def window_of(log: EventLog, goal: Goal, most: int) -> tuple[EventLog, str]:
    """Return the `most` steps in which requests waited most, and what to tell about it.

    If these steps have too few requests for a percentile, there are more. A log that is not longer is
    returned as it is.
    """
    known = known_of(log)
    numbers = array("q", (number for some in known.finished for number in some.number))
    if len(numbers) <= most or not known.run.has_times:
        return log, ""
    times = array("d", accumulate(_times(known, goal), initial=0.0))
    idle, arrived, present = bytearray(), array("q", [0]), array("q")
    for some in known.plans:
        idle += bytes(some.is_after_idle)
        arrived.extend(islice(accumulate(some.arrived, initial=arrived[-1]), 1, None))
        present.extend(map(add, some.seats, some.waiting))
    while True:
        windows = range(len(numbers) - most + 1)
        first = max(windows, key=lambda at: times[at + most] - times[at])
        first = next((at for at in range(first, max(-1, first - most // 4), -1) if idle[at]), first)
        requests = present[first] + arrived[first + most] - arrived[first + 1]
        if requests >= min(FEWEST_FOR_P99, arrived[-1] // 4):
            break
        most *= 2
        if len(numbers) <= most:
            return log, ""
    share = (times[first + most] - times[first]) / (times[-1] or 1)
    last = numbers[first + most - 1]
    note = (
        f"Only steps {numbers[first]:,} to {last:,} were replayed, with {_percent(share)} of the time "
        f"that the goal is about. What their {requests:,} requests waited before and after does not "
        "count."
    )
    return replayed_part(log, numbers[first], last), note


def _percent(share: float) -> str:
    if share < 0.001:
        return "less than 0.1%"
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def _times(known: Known, goal: Goal) -> Iterator[float]:
    """Yield for each step the time that its requests spent in it, as the goal sees it."""
    before = 0.0
    for done, plans in zip(known.finished, known.plans, strict=True):
        for at, end in enumerate(done.end):
            begin = done.begin[at] if plans.is_after_idle[at] else before
            queued = plans.waiting[at] - plans.away[at]  # preempted requests had their first token
            served = plans.seats[at] + plans.away[at]
            requests = (queued if goal.measure not in _BETWEEN_TOKENS else 0) + (
                served if goal.measure not in _UNTIL_FIRST else 0
            )
            yield requests * max(0.0, (end or 0.0) - (begin or 0.0))
            before = end or 0.0
