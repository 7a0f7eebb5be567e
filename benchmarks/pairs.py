"""Interleaved runs: reliable timing on a shared machine."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tqdm import tqdm


@dataclass
class Ratio:
    """How much faster `first` is than `second`: the ratio of their speeds, pair by pair."""

    ratios: list[float]

    @property
    def quartiles(self) -> list[float]:
        """Lower end of the middle half, median, upper end."""
        return statistics.quantiles(self.ratios, n=4)

    def figures(self) -> dict[str, object]:
        """Return the numbers for `report.save`."""
        low, middle, high = self.quartiles
        return {"median": middle, "middle_half": [low, high], "pairs": len(self.ratios)}

    def __str__(self) -> str:
        low, middle, high = self.quartiles
        return f"{middle:.3f} (middle half {low:.3f} to {high:.3f}, {len(self.ratios)} pairs)"


def compare(
    name: str, first: Callable[[], object], second: Callable[[], object], pairs: int = 15
) -> Ratio:
    """Time both in turns. A ratio above 1 means that `first` is faster."""
    first()
    second()  # both warm
    seconds = in_turns(name, {"first": first, "second": second}, pairs)
    return ratio(seconds["first"], seconds["second"])


def ratio(first: list[float], second: list[float]) -> Ratio:
    """The ratio of speeds from seconds that were measured in turns."""
    return Ratio([two / one for one, two in zip(first, second, strict=True)])


def in_turns(
    name: str, works: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of each work in each round; a round runs each once: ABC, CBA, BCA, ..."""
    seconds: dict[str, list[float]] = {work: [] for work in works}
    order = list(works)
    with tqdm(total=rounds * len(works), desc=name, leave=False) as bar:
        for number in range(rounds):
            # The order of the tries may matter, so every system takes every position.
            turned = order[number // 2 % len(order) :] + order[: number // 2 % len(order)]
            for work in turned if number % 2 else reversed(turned):
                start = time.perf_counter()
                works[work]()
                seconds[work].append(time.perf_counter() - start)
                bar.update()
    return seconds


def quickest(
    works: Mapping[str, Callable[[], object]], tries: int = 3
) -> tuple[str, dict[str, float]]:
    """Return the fastest system and the best seconds of each."""
    for work in works.values():
        work()
    seconds = {work: min(times) for work, times in in_turns("settings", works, tries).items()}
    return min(seconds, key=seconds.__getitem__), seconds
