"""Lesson 16: how many of the next blocks to fetch instead of computing them."""

from collections.abc import Sequence


def fetch_or_compute(fetch_us: Sequence[float], compute_us: Sequence[float]) -> int:
    """Try every number: its blocks are fetched, and the ones after them are computed."""
    best, least = 0, sum(compute_us)
    for count in range(1, len(fetch_us) + 1):
        total = sum(fetch_us[:count]) + sum(compute_us[count:])
        if total <= least:
            best, least = count, total
    return best
