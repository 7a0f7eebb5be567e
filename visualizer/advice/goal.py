"""Goals of a run in words: "p99 ttft < 1s", "mean itl <= 50ms and throughput > 500 tokens/s"."""

import re
from dataclasses import dataclass
from statistics import fmean

from engine.simulation.measures import Samples
from engine.simulation.quantile import quantile

MEASURES = ("ttft", "itl", "tpot", "e2e", "queue")
THROUGHPUT = "throughput"
_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "min": 60_000.0}
_SHAPE = re.compile(
    r"(?:(?P<statistic>p\d{1,2}(?:\.\d+)?|mean|max)\s+)?(?P<measure>[a-z0-9]+)\s*"
    r"(?P<sign><=?|>=?)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z/]*)"
)
_EXAMPLES = '"p99 ttft < 1s" or "throughput > 500 tokens/s"'


class GoalError(ValueError):
    """A goal cannot be read. The message says what is allowed."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A measure and its limit, in ms, or in tokens per second for "throughput".

    statistic  "p50", "p99", "mean", "max"; "" for throughput
    limit      None: the less of it, the better
    """

    measure: str
    statistic: str = ""
    limit: float | None = None

    @property
    def name(self) -> str:
        """What is measured, as it is written."""
        return f"{self.statistic} {self.measure}".strip()

    def __str__(self) -> str:
        if self.limit is None:
            return f"less {self.name}"
        sign = ">" if self.measure == THROUGHPUT else "<"
        return f"{self.name} {sign} {in_unit(self.name, self.limit)}"

    def value(self, run: Samples) -> float | None:
        """Return the measure of a run; None if no request has it."""
        if self.measure == THROUGHPUT:
            return run.throughput
        values: list[float] = getattr(run, self.measure)
        if not values:
            return None
        if self.statistic in ("mean", "max"):
            return fmean(values) if self.statistic == "mean" else max(values)
        return quantile(values, float(self.statistic[1:]) / 100)

    def ratio(self, value: float | None) -> float:
        """Return how a value compares with the limit: 1 or less meets the goal, less is better."""
        if not value:
            return float("inf")
        if self.measure == THROUGHPUT:
            return (self.limit or 1.0) / value
        return value / (self.limit or 1.0)


def in_unit(measure: str, value: float | None) -> str:
    """Return a value of a measure with its unit."""
    if value is None:
        return "unknown"
    if measure == THROUGHPUT:
        return f"{value:.3g} tokens/s" if value < 1000 else f"{value:,.0f} tokens/s"
    return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def goals_of(text: str) -> list[Goal]:
    """Return the goals of a text; "and" or a comma stands between several. Raises GoalError."""
    return [_goal(part) for part in re.split(r"\s+and\s+|,", text.strip().lower())]


def _goal(text: str) -> Goal:
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        raise GoalError(f"a goal looks like {_EXAMPLES}, got {text.strip()!r}")
    statistic, measure, sign, number, unit = found.groups()
    if measure == THROUGHPUT:
        if statistic or sign[0] != ">" or unit not in ("", "tokens/s"):
            raise GoalError(f'throughput looks like "throughput > 500 tokens/s", got {text!r}')
        return Goal(measure, limit=float(number))
    if measure not in MEASURES:
        raise GoalError(f"{measure!r} is no measure; there are {', '.join(MEASURES)}, throughput")
    if statistic is None:
        raise GoalError(f"say which {measure}: mean, max, or a percentile such as p99 {measure}")
    if sign[0] != "<":
        raise GoalError(
            f"{measure} is a time, so its goal is an upper limit: {statistic} {measure} <"
        )
    if unit not in _MS:
        raise GoalError(f"the unit of {measure} is one of {', '.join(_MS)}, got {unit!r}")
    if not float(number):
        raise GoalError(f"the limit of {statistic} {measure} must be more than 0")
    return Goal(measure, statistic, float(number) * _MS[unit])
