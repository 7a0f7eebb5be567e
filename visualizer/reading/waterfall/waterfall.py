"""`read(log).waterfall`: where the time of each request went.

read(log).waterfall              the picture: one bar per request, slowest first
ada = read(log).waterfall[1]     one request
print(ada)                       why it was slow, in words
ada.parts                        the same as rows; they add up to `ada.total` exactly
ada.spans                        its spans; they add up to `ada.total` exactly
read(log).waterfall.totals       time by cause, over all requests
read(log).waterfall.frame        all spans as a pandas frame
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Literal

from visualizer.indexed.names import unique_names
from visualizer.reading.frames import import_pandas
from visualizer.reading.waterfall.causes import CAUSES, LOST, WORK
from visualizer.reading.waterfall.parts import Part, parts_of
from visualizer.reading.waterfall.records import Life, Records
from visualizer.reading.waterfall.spans import Span, spans_of, tiles_of, total_of
from visualizer.reading.waterfall.stretches import Stretch, stretches_of
from visualizer.reading.waterfall.sums import Sums

if TYPE_CHECKING:
    import pandas as pd

    from engine.core.log.log import EventLog

Unit = Literal["us", "steps"]


@dataclass(frozen=True)
class RequestTime:
    """The time of one request. Times are in the waterfall's unit, since the run started.

    arrived      None if it arrived before the log begins
    first_token  when its first token was appended; None if it has none, or had it before the log begins
    reason       its finish reason; None while it lives
    """

    request: int
    name: str
    unit: Unit
    arrived: int | None
    first_token: int | None
    reason: str | None
    life: Life = field(repr=False)
    names: Mapping[int, str] = field(repr=False)  # of all requests
    sums: Sums = field(repr=False)  # of the log

    @cached_property
    def stretches(self) -> list[Stretch]:
        """Its time in order, without a gap, from its arrival to its end: few, and quickly made."""
        return list(stretches_of(self.sums, self.life))

    @cached_property
    def spans(self) -> list[Span]:
        """Its time in more detail: several spans for each step."""
        return spans_of(self.sums.records, self.life)

    @property
    def source(self) -> dict[str, Any]:
        """As in `run_started`."""
        return self.sums.records.source

    @property
    def total(self) -> int:
        """Arrival to end: its latency. For an aborted request, to the end of its last step."""
        return self.stretches[-1].end - self.stretches[0].start if self.stretches else 0

    @cached_property
    def by_cause(self) -> dict[str, int]:
        """Time by cause. The values add up to `total`."""
        times = Counter[str]()
        for stretch in self.stretches:
            times.update(stretch.causes)
        return {cause: times[cause] for cause in CAUSES if cause in times}

    @cached_property
    def parts(self) -> list[Part]:
        """One part per cause, each marked as recorded, inferred or unknown. They add up to `total`."""
        from visualizer.reading.waterfall.words import part_words

        parts = parts_of(self.spans, self.source)
        for part in parts:
            part.words = part_words(part, self, self.names)
        return parts

    @property
    def work(self) -> int:
        """Time in which it computed tokens for the first time."""
        return sum(self.by_cause.get(cause, 0) for cause in WORK)

    @property
    def lost(self) -> int:
        """Time lost: preempted, computed again, or made longer by others' prefill."""
        return sum(self.by_cause.get(cause, 0) for cause in LOST)

    @property
    def ttft(self) -> int | None:
        """Arrival to first token, without the time in which the engine was paused."""
        if self.first_token is None or self.arrived is None:
            return None
        until = (one for one in self.stretches if one.end <= self.first_token)
        paused = sum(one.causes.get("paused", 0) for one in until)
        return self.first_token - self.arrived - paused

    def __str__(self) -> str:
        from visualizer.reading.waterfall.words import why_slow

        return why_slow(self)

    def _repr_html_(self) -> str:
        from visualizer.reading.waterfall.picture import picture

        return picture([self], 1, str(self))


class Waterfall:
    """The time of every request of a log; see `RequestTime`. Iterating yields them, slowest first.

    unit   "us" (microseconds), or "steps" if the log was saved without times
    names  name of each request
    """

    def __init__(self, log: "EventLog") -> None:
        self._records = Records.of(log)
        self.unit = self._records.unit
        self._sums = Sums(self._records)
        self._known: dict[int, RequestTime] = {}
        self.names = unique_names(self._records.labels)

    @property
    def requests(self) -> list[int]:
        """The ids of all requests, in order of appearance."""
        return list(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, request: int) -> RequestTime:
        """Return the time of a request. Raises KeyError if the log does not have it."""
        if request not in self._known:
            self._known[request] = time_of(self._sums, self._life(request), self.names)
        return self._known[request]

    def alone(self, request: int) -> RequestTime:
        """Return the same; only the steps of this request are read. Of many, `[]` is faster."""
        life = self._life(request)
        return time_of(Sums(self._records, tiles_of(self._records, life)), life, self.names)

    def _life(self, request: int) -> Life:
        life = self._records.life(request)
        if life is None:
            raise KeyError(f"request: {request!r} is not in this log")
        return life

    def each(self) -> Iterator[RequestTime]:
        """Yield the time of each request, in any order. A long log has too many to keep them all."""
        return (time_of(self._sums, life, self.names) for life in self._records.lives())

    def slowest(self, count: int, among: Container[int] | None = None) -> list[RequestTime]:
        """Return the requests that took longest, those `among` all. No others get spans."""
        lives = (one for one in self._records.outlines() if among is None or one.id in among)
        totals = ((total_of(self._records, one), -one.id) for one in lives)
        return [self.alone(-id_) for _total, id_ in nlargest(count, totals)]

    def __iter__(self) -> Iterator[RequestTime]:
        times = (self[request] for request in self.requests)
        return iter(sorted(times, key=lambda one: -one.total))

    @cached_property
    def totals(self) -> dict[str, int]:
        """Time by cause, over all requests."""
        times = Counter[str]()
        for request in self.requests:
            times.update(self[request].by_cause)
        return {cause: times[cause] for cause in CAUSES if cause in times}

    @property
    def frame(self) -> "pd.DataFrame":
        """One row per span: request, start, end, cause, step, about (a request, or missing)."""
        pd = import_pandas("a table of spans")
        rows = [
            (request, span.start, span.end, span.cause, span.step, span.about)
            for request in self.requests
            for span in self[request].spans
        ]
        frame = pd.DataFrame(rows, columns=["request", "start", "end", "cause", "step", "about"])
        return frame.astype({"about": "Int64"})

    def __str__(self) -> str:
        from visualizer.reading.waterfall.words import overview

        return overview(self)

    def _repr_html_(self) -> str:
        from visualizer.reading.waterfall.picture import picture

        return picture(list(self), len(self), str(self))


def time_of(sums: Sums, life: Life, names: Mapping[int, str]) -> RequestTime:
    """Return the time of a request; `names` has its name, and those that its words need."""
    records, first = sums.records, life.first_token
    return RequestTime(
        request=life.id,
        name=names[life.id],
        unit=records.unit,
        arrived=life.arrived,
        first_token=None if first is None else records.steps[first].end,
        reason=life.reason,
        life=life,
        names=names,
        sums=sums,
    )
