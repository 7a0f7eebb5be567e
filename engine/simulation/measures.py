"""The measures of a run that a what-if compares, computed from its log alone.

The instants of a log can be mapped to other times first, for example to those that a cost model
predicts (`HeldBack.predicted_at`): that shows what the model's error does to each measure.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.latencies import Latencies
from engine.simulation.log_part import started_of
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


def measures(
    log: EventLog,
    at: Callable[[float], float] = float,
    *,
    without: Collection[int] = (),
    cut: Collection[int] = (),
) -> list[Measure]:
    """Return the measures of a run; a value is None if no request has it.

    at       maps the log's instants, in us, to those that count
    without  requests whose latencies and hits do not count, because they arrived before the recording
    cut      requests whose ends do not count, because they came after the recording
    """
    latencies = Latencies(at)
    ttft, itl = list[float | None](), list[float | None]()
    e2e: dict[int, float | None] = {}  # of requests that have a token
    ended = list[int]()
    begin = end = None
    output = preemptions = cached = steps = 0
    prompts: dict[int, int] = {}
    admitted: dict[int, int] = {}  # request -> tokens found in the cache when it was first admitted
    for event in log:
        latencies.note(event)
        match event:
            case v.RequestArrived() if event.request not in without:
                prompts[event.request] = len(event.prompt)
            case v.Admitted() if event.request in prompts:
                admitted.setdefault(event.request, len(event.blocks))
            case v.Preempted():
                preemptions += 1
            case v.StepScheduled() if event.rows:
                steps += 1
            case v.StepFinished() if event.t:
                begin = at(event.t["start"]) if begin is None else begin
                end = at(event.t["end"])
                for row in event.tokens:
                    output += len(row.ids)
                    now = event.t["end"]
                    gaps = latencies.gaps(row, now)
                    if row.request in without:
                        continue
                    if row.request not in e2e:
                        ttft.append(latencies.since_arrival(row.request, now))
                    itl += gaps
                    e2e[row.request] = latencies.e2e(row.request, now)
            case v.RequestFinished() if (
                event.reason in ("stop", "length") and event.request not in cut
            ):
                ended.append(event.request)
    asked = sum(prompts[request] for request in admitted)
    cached = sum(admitted.values()) * _block_size(log)
    span = (end - begin) / US_PER_S if begin is not None and end is not None else 0.0
    times = percentiles("TTFT", ttft) | percentiles("ITL", itl)
    times |= percentiles("e2e", [e2e.get(request) for request in ended])
    return [
        *(Measure(name, value, True) for name, value in times.items()),
        Measure("throughput, tokens/s", output / span if span else None, True),
        Measure("makespan, s", span or None, True),
        Measure("requests that ended", len(ended), False),
        Measure("preemptions", preemptions, False),
        Measure("cache hit rate, %", 100 * cached / asked if asked else None, False),
        Measure("steps", steps, False),
    ]


def percentiles(name: str, found: Iterable[float | None]) -> dict[str, float | None]:
    """Return the median and the 99th percentile, or the maximum of a few values, by name."""
    values = [value for value in found if value is not None]
    share, high = (0.99, "p99") if len(values) >= FEWEST_FOR_P99 else (1.0, "max")
    shares = {f"{name} p50, ms": 0.5, f"{name} {high}, ms": share}
    return {label: quantile(values, one) if values else None for label, one in shares.items()}


def _block_size(log: EventLog) -> int:
    started = started_of(log)
    return int(started.settings["block_size"]) if started else 0
