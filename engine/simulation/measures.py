"""The measures of a run that a what-if compares, computed from its log alone.

The instants of a log can be mapped to other times first, for example to those that a cost model
predicts (`HeldBack.predicted_at`): that shows what the model's error does to each measure.
"""

from collections.abc import Callable
from typing import NamedTuple

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.quantile import quantile

US_PER_MS, US_PER_S = 1_000, 1_000_000
FEWEST_FOR_P99 = 100  # with fewer values, the 99th percentile is the maximum


class Measure(NamedTuple):
    """One number of a run.

    is_time  whether it depends on the clock, and so on the cost model; else it is a count
    """

    name: str
    value: float | None
    is_time: bool


def measures(log: EventLog, at: Callable[[float], float] = float) -> list[Measure]:
    """Return the measures of a run; a value is None if no request has it.

    `at` maps the log's instants, in us, to those that count.
    """
    arrived, first, last, ended = _Times(), _Times(), _Times(), _Times()
    parents: dict[int, int] = {}
    gaps = list[float]()
    begin = end = None
    output = preemptions = cached = steps = 0
    prompts: dict[int, int] = {}
    admitted: dict[int, int] = {}  # request -> tokens found in the cache when it was first admitted
    for event in log:
        match event:
            case v.RequestArrived():
                arrived[event.request] = at(event.t.get("at", 0))
                prompts[event.request] = len(event.prompt)
            case v.Forked():
                parents[event.request] = event.parent
            case v.Admitted():
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
                    if row.request in last:
                        gaps.append((end - last[row.request]) / US_PER_MS)
                        gaps += [0.0] * (len(row.ids) - 1)
                    first.setdefault(row.request, end)
                    last[row.request] = end
            case v.RequestFinished() if event.reason in ("stop", "length"):
                ended[event.request] = last.get(event.request, 0.0)
    asked = sum(prompts[request] for request in admitted)
    cached = sum(admitted.values()) * _block_size(log)
    span = (end - begin) / US_PER_S if begin is not None and end is not None else 0.0

    def since_arrival(instants: _Times) -> list[float]:
        roots = ((parents.get(request, request), instant) for request, instant in instants.items())
        return [(at - arrived[root]) / US_PER_MS for root, at in roots if root in arrived]

    return [
        *_percentiles("TTFT", since_arrival(first)),
        *_percentiles("ITL", gaps),
        *_percentiles("e2e", since_arrival(ended)),
        Measure("throughput, tokens/s", output / span if span else None, True),
        Measure("makespan, s", span or None, True),
        Measure("requests that ended", len(ended), False),
        Measure("preemptions", preemptions, False),
        Measure("cache hit rate, %", 100 * cached / asked if asked else None, False),
        Measure("steps", steps, False),
    ]


_Times = dict[int, float]


def _percentiles(name: str, values: list[float]) -> list[Measure]:
    """Return the median and the 99th percentile, or the maximum of a few values."""
    high = f"{name} {'p99' if len(values) >= FEWEST_FOR_P99 else 'max'}, ms"
    shares = (0.5, 0.99 if len(values) >= FEWEST_FOR_P99 else 1.0)
    found = [quantile(values, share) if values else None for share in shares]
    return [
        Measure(f"{name} p50, ms", found[0], True),
        Measure(high, found[1], True),
    ]


def _block_size(log: EventLog) -> int:
    started = log[0]
    return int(started.settings["block_size"]) if isinstance(started, v.RunStarted) else 0
