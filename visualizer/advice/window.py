"""The steps of a long log in which its requests waited most, as a log that can be replayed.

A replay takes time, and advice needs dozens, so only so many steps of a long log are replayed, from a
moment when the engine had no request, if there was one shortly before.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from engine.core.log.log import EventLog
from visualizer.advice.goal import Goal
from visualizer.indexed.facts import Request
from visualizer.indexed.known import known_of
from visualizer.indexed.part import replayed_part

STEPS = 6000


def window_of(log: EventLog, goal: Goal, most: int) -> tuple[EventLog, str]:
    """Return the `most` steps in which requests waited most, and what to tell about it.

    A log that is not longer is returned as it is.
    """
    known = known_of(log)
    ends = [end for some in known.finished for end in some.end]
    if len(ends) <= most or None in ends:
        return log, ""
    sums = [0.0, *accumulate(_slowness(known.each_request(), ends, goal))]
    first = max(range(len(ends) - most + 1), key=lambda at: sums[at + most] - sums[at])
    idle = [is_idle for some in known.plans for is_idle in some.is_after_idle]
    first = next((at for at in range(first, max(-1, first - most // 4), -1) if idle[at]), first)
    numbers = [number for some in known.finished for number in some.number]
    last = min(first + most, len(ends)) - 1
    share = (sums[last + 1] - sums[first]) / (sums[-1] or 1)
    return replayed_part(log, numbers[first], numbers[last]), (
        f"Only steps {numbers[first]:,} to {numbers[last]:,} were replayed: requests that arrived in "
        f"them have {share:.0%} of the time that the goal is about."
    )


def _slowness(requests: Iterable[Request], ends: Sequence[Any], goal: Goal) -> list[float]:
    """Return how long the requests that arrived before each step took, in us, as the goal sees it."""
    slow = [0.0] * len(ends)
    for one in requests:
        if one.first_token is None or one.arrived_at is None or one.forked is not None:
            continue
        first, last = ends[one.first_token], ends[(one.ends_at or len(ends)) - 1]
        begin = first if goal.measure in ("itl", "tpot") else one.arrived_at
        end = first if goal.measure in ("ttft", "queue") else last
        slow[min(one.begins_at, len(ends) - 1)] += max(0.0, end - begin)
    return slow
