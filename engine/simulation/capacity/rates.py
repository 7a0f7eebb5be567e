"""Which rate to measure next, and when a sweep is past saturation.

Three marks of a curve, in the terms of Jain ("The Art of Computer Systems Performance Analysis", 1991,
section 3.3):

    nominal capacity   the highest throughput, at whatever latency
    usable capacity    the highest rate at which the SLO is still met, as at all lower rates
    knee capacity      the throughput beyond which latency grows faster than throughput

The knee is where the power, throughput divided by mean latency, is highest (Kleinrock, "Power and
deterministic rules of thumb for probabilistic problems in computer communications", 1979). It needs
no threshold. For a single server with random arrivals it is at half of the nominal capacity, and with
equal service times at 59 % of it.

A rate is past saturation if its run takes longer than its arrivals and one undisturbed request, by more
than a tenth: requests came faster than they left, so the queue grew as long as the run lasted, and
every percentile says more about the length of the run than about the server.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

from engine.simulation.capacity.point import Point

KEEPS_UP = 0.9
GROWTH = 2.0  # from one rate to the next, until the sweep is past saturation
CLOSE = 1.15  # two rates this close need none in between
MOST_POINTS = 24
MOST_HALVINGS = 4  # below the first rate, if it was too high


def is_saturated(point: Point, alone_ms: float) -> bool:
    """Whether requests came faster than they left. `alone_ms`: the time of an undisturbed request."""
    possible_s = len(point.rows) / point.rate + alone_ms / 1000
    return point.requests_per_s < KEEPS_UP * len(point.rows) / possible_s


def power(point: Point) -> float:
    """Throughput divided by mean latency; 0 if no request was answered."""
    return point.requests_per_s / (point.mean_e2e_ms / 1000) if point.mean_e2e_ms else 0.0


def knee(points: Sequence[Point]) -> Point | None:
    """Return the point with the highest power; None without a complete answer."""
    best = max(points, key=power, default=None)
    return best if best is not None and power(best) else None


def usable(points: Sequence[Point]) -> Point | None:
    """Return the highest rate that meets the SLO, as all lower ones do; None if the lowest fails."""
    found = None
    for point in sorted(points, key=lambda one: one.rate):
        if not point.meets:
            break
        found = point
    return found


def next_rate(points: Sequence[Point], alone_ms: float) -> float | None:
    """Return the rate to measure next, or None if the curve is known.

    First the rate doubles until it is past saturation; then the gaps are halved in which the three
    marks lie.
    """
    if not points:
        return rounded(1000 / alone_ms)  # on average one request is in the system
    ordered = sorted(points, key=lambda one: one.rate)
    if len(ordered) >= MOST_POINTS:
        return None
    is_past = [is_saturated(point, alone_ms) for point in ordered]
    if is_past[0] or not ordered[0].meets:
        halved = sum(point.rate < points[0].rate for point in points)
        if halved < MOST_HALVINGS:
            return rounded(ordered[0].rate / GROWTH)
    if not any(is_past):
        return rounded(ordered[-1].rate * GROWTH)
    return next(
        (
            between
            for left, right, close in _brackets(ordered, is_past)
            if right.rate / left.rate > close
            and left.rate < (between := rounded(sqrt(left.rate * right.rate))) < right.rate
        ),
        None,
    )


def _brackets(
    ordered: Sequence[Point], is_past: Sequence[bool]
) -> list[tuple[Point, Point, float]]:
    """Return the pairs of neighbours between which a mark lies, and how close they have to be."""
    pairs = list(pairwise(ordered))
    good = usable(ordered)
    peak = ordered.index(max(ordered, key=power))
    return [
        *((left, right, CLOSE) for left, right in pairs if left is good),
        *((*pairs[at], CLOSE) for at in range(len(pairs)) if is_past[at + 1] > is_past[at]),
        *((*pairs[at], CLOSE**2) for at in (peak - 1, peak) if 0 <= at < len(pairs)),
    ]


def rounded(rate: float) -> float:
    """Return a rate with two significant digits."""
    return float(f"{rate:.2g}")
