"""Score a learner's engine: goodput between that of the default engine and that of our solution.

    G        mean of three goodputs: on seed 1, on seed 2, and the median of the hidden seeds
    points   100 * (G - G of the defaults) / (G of our solution - G of the defaults), at most 130;
             less 2 for each request per run that starved, beyond those that starve with our solution
    total    half the mean of the workloads' points and half their minimum

The hidden seeds come from the file itself: any edit draws other ones, so nothing can be tuned to them.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean, median

from project.learner import MineError, Source
from project.runs import Run, measure, serve
from project.workloads import WORKLOADS, Kind

PUBLIC_SEEDS = (1, 2)
COURSE_SALT = "underglass"
PASSED = 80  # settings alone reach about 70
MOST_POINTS = 130
POINTS_PER_STARVED = 2
DEFAULTS = Source("the defaults", "")
OURS = Path(__file__).parent / "solutions" / "ours.py"


def hidden_seeds(source: Source) -> list[int]:
    """Return the three seeds that belong to a file.

    With a teacher's UNDERGLASS_SEED they are the same for all files, so that these can be compared.
    """
    drawn_from = os.environ.get("UNDERGLASS_SEED") or f"{source.sha} {COURSE_SALT}"
    digest = hashlib.sha256(drawn_from.encode()).hexdigest()
    return [int(digest[start : start + 8], 16) for start in (0, 8, 16)]


@dataclass(frozen=True)
class Result:
    """The runs of one workload: on the public seeds, then on the hidden ones."""

    kind: Kind
    yours: list[Run]
    defaults: list[Run]
    ours: list[Run]

    @property
    def starved(self) -> float:
        """The number of requests per run that starve, beyond those that starve with our solution."""
        extra = mean(run.starved for run in self.yours) - mean(run.starved for run in self.ours)
        return max(0.0, extra)

    @property
    def points(self) -> float:
        """The points of this workload, from 0 to 130."""
        least, best = goodput(self.defaults), goodput(self.ours)
        share = 100 * (goodput(self.yours) - least) / (best - least)
        return round(max(0.0, min(MOST_POINTS, share) - POINTS_PER_STARVED * self.starved), 1)


def goodput(runs: Sequence[Run]) -> float:
    """Return the mean of the goodput on the public seeds and of the median on the hidden ones.

    The median moves less from one draw of seeds to the next than the mean.
    """
    public, hidden = runs[: len(PUBLIC_SEEDS)], runs[len(PUBLIC_SEEDS) :]
    return mean([*(run.goodput for run in public), median(run.goodput for run in hidden)])


def total(results: Sequence[Result]) -> float:
    """Return half the mean and half the minimum of the workloads' points."""
    points = [result.points for result in results]
    return round((mean(points) + min(points)) / 2, 1)


def score(source: Source, progress: Callable[[str], None] = lambda _: None) -> list[Result]:
    """Run the three workloads on all seeds.

    Raises MineError if a part of the learner's fails, or decides differently when it is asked again.
    """
    progress("two equal runs")
    _check_repeats(source)
    ours = Source.read(OURS)
    results = []
    for kind in WORKLOADS:
        seeds = [*PUBLIC_SEEDS, *hidden_seeds(source)]
        runs = []
        for number, seed in enumerate(seeds, 1):
            progress(f"{kind.name}: seed {number} of {len(seeds)}")
            runs.append([_run(one, kind, seed) for one in (source, DEFAULTS, ours)])
        results.append(Result(kind, *(list(column) for column in zip(*runs, strict=True))))
    return results


def _check_repeats(source: Source) -> None:
    """Raise MineError unless two runs of the same workload are the same."""
    kind, seed = WORKLOADS[-1], PUBLIC_SEEDS[0]
    first, second = (serve(source, kind, seed).deterministic() for _ in range(2))
    if first != second:
        raise MineError(
            f"two runs of {kind.name}, seed {seed}, differ, so your score could not be verified: does "
            "a part use random numbers without a seed, or the clock?"
        )


@cache
def _run(source: Source, kind: Kind, seed: int) -> Run:
    return measure(serve(source, kind, seed), kind)
