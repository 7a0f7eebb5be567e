"""The measures of a run that a what-if compares, computed from its log alone.

The instants of a log can be mapped to other times first, for example to those that a cost model
predicts (`HeldBack.predicted_at`): that shows what the model's error does to each measure.
"""

from array import array
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.latencies import Latencies
from engine.simulation.log_part import Window, started_of
from engine.simulation.quantile import quantile

US_PER_S = 1_000_000
FEWEST_FOR_P99 = 100  # with fewer values, the 99th percentile is the maximum


class Measure(NamedTuple):
    """One number of a run.

    is_time  whether it depends on the clock, and so on the cost model; else it is a count
    """

    name: str
    value: float | None
    is_time: bool


def _times() -> "array[float]":
    return array("d")  # compact, because a search keeps the samples of many replays


@dataclass
class Samples:
    """The times of a run's requests in ms, and its counts.

    tpot    time per output token after the first, of requests with several
    queue   from the arrival to the first step that computes a token of the request
    end_us  when the last step ended, after the first had begun at `begin_us`
    most_rows, most_tokens  of a step
    """

    ttft: "array[float]" = field(default_factory=_times)
    itl: "array[float]" = field(default_factory=_times)
    tpot: "array[float]" = field(default_factory=_times)
    e2e: "array[float]" = field(default_factory=_times)
    queue: "array[float]" = field(default_factory=_times)
    begin_us: float | None = None
    end_us: float = 0.0
    ended: int = 0
    output: int = 0
    preemptions: int = 0
    steps: int = 0
    most_rows: int = 0
    most_tokens: int = 0

    @property
    def span_s(self) -> float:
        """How long the run took, in seconds."""
        return 0.0 if self.begin_us is None else (self.end_us - self.begin_us) / US_PER_S

    @property
    def throughput(self) -> float | None:
        """Output tokens per second."""
        return self.output / self.span_s if self.span_s else None


def merged(runs: Iterable[Samples]) -> Samples:
    """Return the samples of several replicas as those of one run."""
    whole = Samples()
    for run in runs:
        for name in ("ttft", "itl", "tpot", "e2e", "queue"):
            getattr(whole, name).extend(getattr(run, name))
        for name in ("ended", "output", "preemptions", "steps"):
            setattr(whole, name, getattr(whole, name) + getattr(run, name))
        begins = [one for one in (whole.begin_us, run.begin_us) if one is not None]
        whole.begin_us = min(begins, default=None)
        whole.end_us = max(whole.end_us, run.end_us)
        whole.most_rows = max(whole.most_rows, run.most_rows)
        whole.most_tokens = max(whole.most_tokens, run.most_tokens)
    return whole


def samples(
    log: EventLog,
    at: Callable[[float], float] = float,
    *,
    without: Collection[int] = (),
    cut: Collection[int] = (),
    window: Window | None = None,
) -> Samples:
    """Return the times and counts of a run.

    at       maps the log's instants, in us, to those that count
    without  requests whose times do not count, because they arrived before the recording
    cut      requests whose ends do not count, because they came after the recording
    window   of a part of a run, or its replay: requests count from its beginning on, and until its end
    """
    collector = SampleCollector(at, without=without, cut=cut, window=window)
    for event in log:
        collector.add(event)
    return collector.end()


class SampleCollector:
    """Collects the samples of a log, event by event; see `samples`."""

    def __init__(
        self,
        at: Callable[[float], float] = float,
        *,
        without: Collection[int] = (),
        cut: Collection[int] = (),
        window: Window | None = None,
    ) -> None:
        self._at, self._without, self._cut, self._window = at, without, cut, window
        self._latencies = Latencies(at, None if window is None else window.begin_us)
        self._found = Samples()
        self._first: dict[int, float] = {}  # request -> TTFT
        self._last: dict[int, tuple[float, int]] = {}  # request -> e2e so far, and tokens
        self._live: dict[int, None] = {}  # requests
        self._waits, self._begun = set[int](), list[int]()  # requests
        self._sizes: list[tuple[int, int]] = []  # rows and tokens of each step

    def add(self, event: v.Event) -> None:
        """Add the next event."""
        self._latencies.note(event)
        match event:
            case v.Keyframe() if self._window is not None:
                self._arrived(one.id for one in event.state.requests)
            case v.RequestArrived():
                self._arrived([event.request])
            case v.Forked() if event.parent in self._live:
                self._live[event.request] = None
            case v.Preempted():
                self._found.preemptions += 1
            case v.StepScheduled() if event.rows:
                self._sizes.append((len(event.rows), sum(row.count for row in event.rows)))
                self._begun = [row.request for row in event.rows if row.request in self._waits]
                self._waits.difference_update(self._begun)
            case v.StepFinished() if event.t:
                self._step_finished(event, event.t["start"], event.t["end"])
            case v.RequestFinished():
                self._live.pop(event.request, None)
                if event.reason in ("stop", "length") and event.request not in self._cut:
                    self._found.ended += 1
                    if event.request in self._last:
                        self._found.e2e.append(self._last[event.request][0])
                        self._add_tpot(event.request)

    def end(self) -> Samples:
        """Return the samples."""
        found, window = self._found, self._window
        found.steps = len(self._sizes)
        found.most_rows = max((rows for rows, _ in self._sizes), default=0)
        found.most_tokens = max((tokens for _, tokens in self._sizes), default=0)
        if window is not None:
            self._add_unended(window.end_us)
        answered = window.answered if window else ()
        found.ttft.extend(ttft for one, ttft in self._first.items() if one not in answered)
        return found

    def _arrived(self, requests: Iterable[int]) -> None:
        arrived = [one for one in requests if one not in self._without]
        computed = self._window.computed if self._window else ()
        self._live |= dict.fromkeys(arrived)
        self._waits.update(one for one in arrived if one not in computed)

    def _step_finished(self, event: v.StepFinished, start: int, now: int) -> None:
        found, latencies = self._found, self._latencies
        if self._window is not None and now <= self._window.begin_us:
            self._sizes.clear()  # it restored requests
        found.begin_us = self._at(start) if found.begin_us is None else found.begin_us
        found.end_us = self._at(now)
        queued = [latencies.since_arrival(one, start) for one in self._begun]
        found.queue.extend(max(0.0, one) for one in queued if one is not None)
        self._begun = []
        for row in event.tokens:
            found.output += len(row.ids)
            gaps = latencies.gaps(row, now)
            if row.request in self._without:
                continue
            found.itl.extend(one for one in gaps if one is not None)
            whole = latencies.e2e(row.request, now)
            since_arrival = latencies.since_arrival(row.request, now)
            if whole is not None and since_arrival is not None:
                self._first.setdefault(row.request, since_arrival)
                tokens = self._last.get(row.request, (0.0, 0))[1] + len(row.ids)
                self._last[row.request] = whole, tokens

    def _add_tpot(self, request: int) -> None:
        whole, tokens = self._last.get(request, (0.0, 0))
        if tokens > 1:
            self._found.tpot.append((whole - self._first[request]) / (tokens - 1))

    def _add_unended(self, end_us: int) -> None:
        """Count until the end of the window what had not ended then."""
        found = self._found
        found.end_us = max(found.end_us, self._at(end_us))
        for request in self._live:
            self._add_tpot(request)
            waited = self._latencies.since_arrival(request, end_us) or 0.0
            if waited > 0:
                self._first.setdefault(request, waited)
                found.e2e.append(self._latencies.e2e(request, end_us) or 0.0)
                found.queue.extend([waited] * (request in self._waits))


def measures(
    log: EventLog,
    at: Callable[[float], float] = float,
    *,
    without: Collection[int] = (),
    cut: Collection[int] = (),
    window: Window | None = None,
) -> list[Measure]:
    """Return the measures of a run; a value is None if no request has it. See `samples`.

    The hit rate is without the requests that arrived before a window.
    """
    found = samples(log, at, without=without, cut=cut, window=window)
    earlier = {*without, *(window.earlier if window else ())}
    prompts = {
        one.request: len(one.prompt)
        for one in log.each(v.RequestArrived)
        if one.request not in earlier
    }
    admitted: dict[int, int] = {}  # request -> tokens found in the cache when it was first admitted
    for event in log.each(v.Admitted):
        if event.request in prompts:
            admitted.setdefault(event.request, len(event.blocks))
    asked = sum(prompts[request] for request in admitted)
    cached = sum(admitted.values()) * _block_size(log)
    times = percentiles("TTFT", found.ttft) | percentiles("ITL", found.itl)
    times |= percentiles("e2e", found.e2e)
    return [
        *(Measure(name, value, True) for name, value in times.items()),
        Measure("throughput, tokens/s", found.throughput, True),
        Measure("makespan, s", found.span_s or None, True),
        Measure("requests that ended", found.ended, False),
        Measure("preemptions", found.preemptions, False),
        Measure("cache hit rate, %", 100 * cached / asked if asked else None, False),
        Measure("steps", found.steps, False),
    ]


def percentiles(name: str, found: Iterable[float | None]) -> dict[str, float | None]:
    """Return the median and the 99th percentile, or the maximum of a few values, by name."""
    values = [value for value in found if value is not None]
    share, high = (0.99, "p99") if len(values) >= FEWEST_FOR_P99 else (1.0, "max")
    shares = {f"{name} p50, ms": 0.5, f"{name} {high}, ms": share}
    return {label: quantile(values, one) if values else None for label, one in shares.items()}


def percent_change(change: float, digits: int = 0) -> str:
    """Return a relative change in words: "+12%", "-3%" or, where it rounds to nothing, "±0%"."""
    words = f"{change:+.{digits}%}"
    return words if float(words[:-1]) else f"±{words[1:]}"


def _block_size(log: EventLog) -> int:
    started = started_of(log)
    return int(started.settings["block_size"]) if started else 0
