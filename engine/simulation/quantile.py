"""Quantiles, interpolated linearly between the two nearest values, as in numpy and pandas."""

from collections.abc import Sequence


def quantile(values: Sequence[float], share: float, *, is_sorted: bool = False) -> float:
    """Return the quantile of a share between 0 and 1. Raises IndexError without a value."""
    ordered = values if is_sorted else sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
