"""Score a learner's engine: goodput between that of an engine without parts and that of our solution.

    points of a workload   100 * (G - G without parts) / (G of our solution - G without parts), at most
                           130; less 2 for each request per run that starved, beyond those of ours
    points of the checks   the share of the exact parts that are written, in percent
    total                  the mean of all these

G is the mean goodput on the public seed and on two hidden ones, which come from the file itself: any
edit draws other ones, so nothing can be tuned to them.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean
from typing import Any

from project.gates import GATES, Gate
from project.learner import EXACT, FREE, Mine, MineError, Source
from project.process import Process
from project.runs import Run, Served, serve
from project.solutions import ours
from project.workloads import CACHE, WORKLOADS, Kind

PUBLIC_SEED = 1
COURSE_SALT = "underglass"
PASSED = 80  # the lessons' parts reach about 50
MOST_POINTS = 130
POINTS_PER_STARVED = 2


class Trusted(Mine):
    """Parts of our own, called directly."""

    def guarded(self, name: str) -> Any:
        """See `Mine`."""
        return self.parts.get(name)


class _Changed(Mine):
    """A learner's parts, some of which are left out or replaced by ours."""

    def __init__(self, mine: Mine, parts: Mapping[str, Any]) -> None:
        super().__init__(mine.settings, dict(parts))
        self._mine = mine

    def guarded(self, name: str) -> Any:
        """See `Mine`."""
        part = self.parts.get(name)
        return self._mine.guarded(name) if name in self.parts and part is None else part

    def each(self, name: str) -> Any:
        """See `Mine`."""
        return super().each(name) if self.parts.get(name) else self._mine.each(name)


BARE = Trusted({}, {})
OURS = Trusted({}, dict.fromkeys(EXACT) | {name: getattr(ours, name) for name in FREE})
BETTER = ("order", "admit")  # in which ours does more than the lessons'


def hidden_seeds(source: Source) -> list[int]:
    """Return the two seeds that belong to a file.

    With a teacher's UNDERGLASS_SEED they are the same for all files, so that these can be compared.
    """
    drawn_from = os.environ.get("UNDERGLASS_SEED") or f"{source.sha} {COURSE_SALT}"
    digest = hashlib.sha256(drawn_from.encode()).hexdigest()
    return [int(digest[start : start + 8], 16) for start in (0, 8)]


@dataclass(frozen=True)
class Result:
    """The runs of one workload: on the public seed, then on the hidden ones.

    served  the run on the public seed
    brings  parts of the learner's -> the points that they bring on the public seed
    lacks   parts -> the points that ours would bring instead, or that an absent one would
    """

    kind: Kind
    yours: list[Run]
    bare: list[Run]
    ours: list[Run]
    served: Served | None = None
    brings: Mapping[str, float] | None = None
    lacks: Mapping[str, float] | None = None

    @property
    def starved(self) -> float:
        """The number of requests per run that starve, beyond those that starve with our solution."""
        extra = mean(run.starved for run in self.yours) - mean(run.starved for run in self.ours)
        return max(0.0, extra)

    @property
    def points(self) -> float:
        """The points of this workload, from 0 to 130."""
        least, best = goodput(self.bare), goodput(self.ours)
        share = 100 * (goodput(self.yours) - least) / (best - least)
        return round(max(0.0, min(MOST_POINTS, share) - POINTS_PER_STARVED * self.starved), 1)


def goodput(runs: Sequence[Run]) -> float:
    """Return the mean goodput of some runs."""
    return mean(run.goodput for run in runs)


def passed(
    source: Source, tell: Callable[[Gate, str | None, list[str]], None] = lambda *_: None
) -> list[str]:
    """Test all gates, and return the parts that are written. Raises MineError for the gates that fail.

    tell  gets each gate, what is wrong or None, and the parts
    """
    failures = []
    with Process(source) as process:
        parts = sorted(process.load().parts)
        for gate in GATES:
            failure = process.ask("gate", gate.name)
            tell(gate, failure, parts)
            failures += [f"gate {gate.name}: {failure}"] if failure else []
    if failures:
        raise MineError("\n".join(failures))
    return parts


def checks(parts: Sequence[str]) -> float:
    """Return the points for exact parts, which the gates have tested."""
    return round(100 * len({*parts} & {*EXACT}) / len(EXACT), 1)


def total(points: Sequence[float]) -> float:
    """Return the mean of the points of the workloads and of the checks."""
    return round(mean(points), 1)


def score(
    source: Source, progress: Callable[[str], None] = lambda _: None, *, explain: bool = False
) -> list[Result]:
    """Run all workloads on all seeds; `explain` also finds where the points went.

    The file is loaded again for each run. Raises MineError if a part of the learner's fails, or
    decides differently when it is asked again.
    """
    results = []
    seeds = [PUBLIC_SEED, *hidden_seeds(source)]
    with Process(source) as process:
        for kind in WORKLOADS:
            served, known = [], []
            for number, seed in enumerate(seeds, 1):
                progress(f"{kind.name}: seed {number} of {len(seeds)}")
                served.append(serve(process.load(), kind, seed))
                known.append(references(kind, seed))
            if kind is WORKLOADS[0]:
                _check_repeats(process, served[0])
            bare, best = (list(runs) for runs in zip(*known, strict=True))
            result = Result(kind, [one.measure() for one in served], bare, best, served[0])
            if explain:
                progress(f"{kind.name}: what each part brings")
                brings, lacks = _explained(process, result)
                result = replace(result, brings=brings, lacks=lacks)
            results.append(result)
    return results


def _check_repeats(process: Process, served: Served) -> None:
    """Raise MineError unless a second run of the same workload is the same."""
    again = serve(process.load(), served.kind, PUBLIC_SEED)
    if again.log.deterministic() != served.log.deterministic():
        raise MineError(
            f"two runs of {served.kind.name}, seed {PUBLIC_SEED}, differ, so your score could not be "
            "verified: does a part use random numbers without a seed, or the clock?"
        )


def _explained(process: Process, result: Result) -> tuple[dict[str, float], dict[str, float]]:
    """Return what parts bring and lack on the public seed: one is left out, or is ours, at a time."""
    kind, parts = result.kind, process.load().parts
    bare, best = result.bare[:1], result.ours[:1]

    def gain(changed: Mapping[str, Any]) -> float:
        run = serve(_Changed(process.load(), changed), kind, PUBLIC_SEED).measure()
        before, after = (Result(kind, [one], bare, best).points for one in (result.yours[0], run))
        return after - before

    brings, lacks = dict[str, float](), dict[str, float]()
    for group in dict.fromkeys(CACHE if name in CACHE else (name,) for name in kind.uses):
        name, is_written = " + ".join(group), parts.keys() >= set(group)
        if is_written:
            brings[name] = -gain({one: None for one in parts if one != group[0]})
        if not is_written or name in BETTER:
            lacks[name] = gain(parts | {one: OURS.parts[one] for one in group})
    return brings, lacks


@cache
def references(kind: Kind, seed: int) -> tuple[Run, Run]:
    """Return the runs without parts, and with our solution."""
    return serve(BARE, kind, seed).measure(), serve(OURS, kind, seed).measure()
