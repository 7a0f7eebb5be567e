"""The steps of a long log in which its requests waited most, as a log that can be replayed.

A replay takes time, and advice needs dozens, so only so many steps of a long log are replayed, from a
moment when the engine had no request, if there was one shortly before. A request counts if all of the
time that the goal is about lies in these steps; where too few do, because they take long, the steps are
doubled.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from engine.core.log.log import EventLog
from engine.simulation.measures import FEWEST_FOR_P99
from visualizer.advice.goal import Goal
from visualizer.indexed.facts import Request
from visualizer.indexed.known import known_of
from visualizer.indexed.part import replayed_part

STEPS = 6000

# Steps at which a request's time began and ended, and the time in us.
Span = tuple[int, int, float]


def window_of(log: EventLog, goal: Goal, most: int) -> tuple[EventLog, str]:
    """Return the `most` steps in which requests waited most, and what to tell about it.

    A log that is not longer is returned as it is.
    """
    known = known_of(log)
    ends = [end for some in known.finished for end in some.end]
    if len(ends) <= most or None in ends:
        return log, ""
    spans = [*_spans(known.each_request(), ends, goal)]
    idle = [is_idle for some in known.plans for is_idle in some.is_after_idle]
    while True:
        times = _within([one for *_, one in spans], spans, len(ends), most)
        first = max(range(len(times)), key=times.__getitem__)
        first = next((at for at in range(first, max(-1, first - most // 4), -1) if idle[at]), first)
        counted = _within([1.0] * len(spans), spans, len(ends), most)[first]
        if counted >= min(FEWEST_FOR_P99, len(spans) // 4):
            break
        most *= 2
        if len(ends) <= most:
            return log, ""
    numbers = [number for some in known.finished for number in some.number]
    last = first + most - 1
    share = times[first] / (sum(one for *_, one in spans) or 1)
    told = f"{share:.0%}" if share >= 0.01 else "less than 1%"
    note = (
        f"Only steps {numbers[first]:,} to {numbers[last]:,} were replayed, with {told} of the "
        f"time that the goal is about: that of the {counted:,.0f} requests whose time lies in them."
    )
    return replayed_part(log, numbers[first], numbers[last]), note


def _within(values: Iterable[float], spans: Sequence[Span], steps: int, most: int) -> list[float]:
    """Return for each window of `most` steps the sum of the values whose spans lie in it."""
    changes = [0.0] * (steps + 1)
    for value, (begin, end, _) in zip(values, spans, strict=True):
        low, high = max(0, end - most + 1), min(begin, steps - most)  # first steps of such windows
        if low <= high:
            changes[low] += value
            changes[high + 1] -= value
    return [*accumulate(changes)][: steps - most + 1]


def _spans(requests: Iterable[Request], ends: Sequence[Any], goal: Goal) -> Iterator[Span]:
    """Yield the time of each request, as the goal sees it."""
    latest = len(ends) - 1
    for one in requests:
        if one.first_token is None or one.arrived_at is None or one.forked is not None:
            continue
        is_until_first = goal.measure in ("ttft", "queue")
        if not is_until_first and one.ends_at is None:
            continue
        ended = one.first_token if is_until_first else (one.ends_at or len(ends)) - 1
        begin = ends[one.first_token] if goal.measure in ("itl", "tpot") else one.arrived_at
        yield min(one.begins_at, latest), ended, max(0.0, ends[ended] - begin)
