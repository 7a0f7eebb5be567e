"""The measures of a whole run, and which of two runs has the better one."""

from typing import TYPE_CHECKING

from engine.events import EventLog
from engine.events import vocabulary as v
from engine.events.facts import Fact
from visualizer.comparing.accuracy import Accuracy
from visualizer.logs import settings_of
from visualizer.summary import MIN_VALUES

if TYPE_CHECKING:
    import pandas as pd

US_PER_S = 1_000_000
ADOPTED = "tokens adopted from other replicas"

# What a foreign log has to know; otherwise the value is None.
_FACTS: dict[str, Fact] = {
    "throughput, tokens/s": "scheduled_tokens",
    "preemptions": "preemptions",
    "tokens found in the cache": "cached_tokens",
    "tokens computed twice": "scheduled_tokens",
    "output tokens": "scheduled_tokens",
}

# The better value is the smaller one, or the larger one. Other measures have no better value.
_SMALLER = ("TTFT", "ITL", "time, ms", "preemptions", "tokens computed twice")
_LARGER = ("throughput", "tokens found in the cache")


def run_totals(log: EventLog, requests: "pd.DataFrame") -> dict[str, float | None]:
    """Return the measures of a run by name. `requests` is `log.requests`."""
    finished = [event for event in log.of(v.StepFinished) if "start" in event.t]
    seconds = (finished[-1].t["end"] - finished[0].t["start"]) / US_PER_S if finished else 0.0
    output = int(requests["output_tokens"].sum())
    size = int(settings_of(log)["block_size"])
    cached_blocks = sum(len(event.blocks) for event in log.of(v.Admitted))
    adopted_blocks = sum(len(event.blocks) for event in log.of(v.PrefixAdopted))
    totals: dict[str, float | None] = {
        "time, ms": seconds * 1000 if seconds else None,
        "throughput, tokens/s": output / seconds if seconds else None,
        "mean TTFT, ms": float(requests["ttft_ms"].mean()),
        **_percentiles("TTFT", requests["ttft_ms"].dropna()),
        "mean ITL, ms": float(requests["itl_ms"].mean()),
        **_percentiles("ITL", log.tokens["gap_ms"].dropna()),
        "steps": len(log.of(v.StepStarted)),
        "preemptions": len(log.of(v.Preempted)),
        "tokens found in the cache": cached_blocks * size,
        ADOPTED: adopted_blocks * size,
        "tokens computed twice": _computed_twice(log),
        "output tokens": output,
    }
    lacked = [name for name, fact in _FACTS.items() if log.knowledge.lacks(fact)]
    return totals | dict.fromkeys(lacked)


def _percentiles(name: str, values: "pd.Series") -> dict[str, float | None]:
    """Return the median and, with enough values, the 99th percentile; otherwise the maximum."""
    if values.empty:
        return {}
    high = {f"{name} p99, ms": float(values.quantile(0.99))}
    if len(values) < MIN_VALUES["p99"]:
        high = {f"{name} max, ms": float(values.max())}
    return {f"{name} p50, ms": float(values.median()), **high}


def _computed_twice(log: EventLog) -> int:
    """Return how many tokens were computed again because a preemption had freed their blocks."""
    computed: dict[int, int] = {}  # request -> tokens computed at some time
    again = 0
    for event in log.of(v.StepScheduled):
        for row in event.rows:
            end = row.start + row.count - len(row.drafts)
            once = computed.get(row.request, 0)
            again += max(0, min(end, once) - row.start)
            computed[row.request] = max(end, once)
    return again


def is_better(name: str, a: float | None, b: float | None, times: Accuracy) -> str:
    """Return the run with the better measure, "a" or "b", "noise" if too close to tell, or ""."""
    if a is None or b is None or a == b or not name.startswith((*_SMALLER, *_LARGER, "mean ")):
        return ""
    is_time = name.endswith((", ms", "tokens/s"))
    if is_time and times.is_noise(
        "itl" if "ITL" in name else "ttft" if "TTFT" in name else "e2e", a, b
    ):
        return "noise"
    return "b" if (b < a) != name.startswith(_LARGER) else "a"
