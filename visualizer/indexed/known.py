"""What is known of the steps and the requests of a log, with or without an index."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Literal, cast

from engine.core.log import EventLog, LogError
from engine.simulation.latencies import PausedTime
from visualizer.indexed.collector import Collector
from visualizer.indexed.facts import Fact, Finished, Plans, Request, Run, Steps
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.sources.collector import without_gc


class Known:
    """The facts of a log, by kind.

    finished, plans   have the same steps in the same order
    requests  in order of appearance
    """

    def __init__(self, facts: Iterable[Fact]) -> None:
        self.steps: list[Steps] = []
        self.finished: list[Finished] = []
        self.plans: list[Plans] = []
        self.requests: list[Request] = []
        for fact in facts:
            match fact:
                case Steps():
                    self.steps.append(fact)
                case Finished():
                    self.finished.append(fact)
                case Plans():
                    self.plans.append(fact)
                case Request():
                    self.requests.append(fact)
                case Run():
                    self.run = fact
        self.requests.sort(key=lambda one: one.index)

    @property
    def unit(self) -> Literal["us", "steps"]:
        """The unit of times: "steps" if the log was saved without times; then each step takes 1."""
        return "us" if self.run.has_times else "steps"

    @property
    def paused(self) -> PausedTime:
        """When the engine was paused."""
        paused = PausedTime()
        paused.intervals = cast("list[tuple[int, int]]", self.run.pauses)
        return paused

    @property
    def labels(self) -> dict[int, str]:
        """The labels of all requests, and of all samples that they ask for."""
        labels: dict[int, str] = {}
        for one in self.requests:
            samples = one.n if one.forked is None else 1
            labels |= {one.id + sample: one.label for sample in range(samples)}
        return labels


def known_of(log: EventLog, *kinds: type[Fact]) -> Known:
    """Return the facts of a log that are of these kinds: its index has them, or the log is folded now.

    Raises LogError for a log that contradicts itself.
    """
    if isinstance(log, IndexedLog):
        with suppress(LogError):  # a part is damaged, and the events tell the same
            return Known(log.index.facts(*kinds, Run))
    collector = Collector()
    with without_gc():
        for event in log:
            collector.apply(event)
        return Known(collector.facts(is_end=True))
