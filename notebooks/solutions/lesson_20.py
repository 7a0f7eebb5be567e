"""Lesson 20: how many requests a second can a server take?"""

from collections.abc import Callable, Sequence
from math import ceil, inf, sqrt

# When a request was to arrive, when it was sent, and when its first token came, in ms.
Row = tuple[float, float, float | None]


def capacity(measure: Callable[[float], Sequence[Row]], limit_ms: float) -> float:
    """Double until it is too much, then halve the gap."""

    def meets(rate: float) -> bool:
        rows = measure(rate)
        waits = sorted(inf if first is None else first - due for due, _, first in rows)
        return waits[ceil(0.99 * len(waits)) - 1] <= limit_ms

    low = high = 1.0
    while meets(high):
        low, high = high, 2 * high
    while not meets(low):
        low, high = low / 2, low
    while high > 1.05 * low:
        middle = sqrt(low * high)
        if meets(middle):
            low = middle
        else:
            high = middle
    return low
