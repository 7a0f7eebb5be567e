"""Interleaved pairs: the only kind of timing that means something on a shared machine."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from tqdm import tqdm


@dataclass
class Ratio:
    """How much faster `first` is than `second`: the ratio of their speeds, pair by pair."""

    ratios: list[float]

    def __str__(self) -> str:
        low, middle, high = statistics.quantiles(self.ratios, n=4)
        return f"{middle:.3f} (middle half {low:.3f} to {high:.3f}, {len(self.ratios)} pairs)"


def compare(
    name: str, first: Callable[[], None], second: Callable[[], None], pairs: int = 15
) -> Ratio:
    """Time both in turns. A ratio above 1 means that `first` is faster."""
    first()
    second()  # both warm
    ratios = []
    for number in tqdm(range(pairs), desc=name, leave=False):
        if number % 2:  # whoever goes second may profit or suffer: take turns
            of_first, of_second = _seconds(first), _seconds(second)
        else:
            of_second, of_first = _seconds(second), _seconds(first)
        ratios.append(of_second / of_first)
    return Ratio(ratios)


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
