"""The times of requests that have ended, of a log that grows, in memory that does not grow with it.

`read(log).waterfall` has the same of a whole log. While a run goes on, the part of a decode that is due
to others' prefill is inferred from the steps up to now, so it may differ a little.
"""

from collections.abc import Iterable, Iterator

from engine.core.log.vocabulary import Event
from visualizer.indexed.collector import Collector
from visualizer.indexed.known import Known
from visualizer.reading.waterfall.records import LatestSteps, Records, infer_others_prefill
from visualizer.reading.waterfall.sums import Sums
from visualizer.reading.waterfall.waterfall import RequestTime, time_of

_NEAR = 1000  # steps before a new one that its decodes may be compared with


class EndedRequests:
    """The requests of one run."""

    def __init__(self) -> None:
        self._collector = Collector()
        self._records, self._steps = Records(), LatestSteps()
        self._records.steps = self._steps
        self._sums = Sums(self._records)

    def take(self, events: Iterable[Event]) -> Iterator[RequestTime]:
        """Add the events that follow, and yield the requests that have ended and cannot change.

        Raises LogError for an event that does not fit those before it.
        """
        for event in events:
            self._collector.apply(event)
        yield from self._ended(is_end=False)

    def end(self) -> Iterator[RequestTime]:
        """Yield the requests whose end was the last that the log has."""
        yield from (one for one in self._ended(is_end=True) if one.reason is not None)

    def _ended(self, *, is_end: bool) -> Iterator[RequestTime]:
        oldest, before = self._collector.oldest, len(self._steps)
        known = Known([*self._collector.facts(is_end=is_end), self._collector.run()])
        self._records.add(known)
        infer_others_prefill(self._steps.since(before - _NEAR))
        self._sums.keep(self._steps.first_timed, before - _NEAR)
        for one in known.each_request():
            life = self._records.life(one.id)
            assert life is not None
            yield time_of(self._sums, life, {one.id: one.label or f"r{one.id}"})
            self._records.forget(one.id)
        # The step before a request's first one says when its time began.
        self._steps.drop(min(oldest, len(self._steps) - _NEAR) - 1)
