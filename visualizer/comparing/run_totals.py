"""The measures of a whole run, and which of two runs has the better one."""

from collections.abc import Sequence
from statistics import fmean

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.simulation.facts import Fact
from engine.simulation.measures import percentiles
from visualizer import read
from visualizer.comparing.accuracy import Accuracy
from visualizer.logs import settings_of
from visualizer.reading.busy_time import busy_us
from visualizer.reading.rows import RequestRow

US_PER_S = 1_000_000
US_PER_MS = 1000
HELD = "paused or idle, ms"
ADOPTED = "tokens adopted from other replicas"

# The fact that a foreign log must have for a measure; without it, the value is None.
_FACTS: dict[str, Fact] = {
    "throughput, tokens/s": "scheduled_tokens",
    "preemptions": "preemptions",
    "tokens found in the cache": "cached_tokens",
    "tokens computed twice": "scheduled_tokens",
    "output tokens": "scheduled_tokens",
}

# Measures whose smaller value is better, and those whose larger value is. No value of another measure
# is better.
_SMALLER = ("TTFT", "ITL", "busy time, ms", "preemptions", "tokens computed twice")
_LARGER = ("throughput", "tokens found in the cache")


def run_totals(log: EventLog, requests: Sequence[RequestRow]) -> dict[str, float | None]:
    """Return the measures of a run by name. `requests` is `read(log).request_rows`.

    Times count only while a step ran: a run that was paused or had nothing to do is not a slow one.
    """
    busy, whole = busy_us(log)
    seconds = busy / US_PER_S
    output = sum(row.output_tokens for row in requests)
    ttft = [row.ttft_ms for row in requests if row.ttft_ms is not None]
    itl = [row.itl_ms for row in requests if row.itl_ms is not None]
    gaps = [row.gap_ms for row in read(log).token_rows if row.gap_ms is not None]
    size = int(settings_of(log)["block_size"])
    cached_blocks = sum(len(event.blocks) for event in log.of(v.Admitted))
    adopted_blocks = sum(len(event.blocks) for event in log.of(v.PrefixAdopted))
    totals: dict[str, float | None] = {
        "busy time, ms": busy / US_PER_MS if busy else None,
        HELD: (whole - busy) / US_PER_MS,
        "throughput, tokens/s": output / seconds if seconds else None,
        "mean TTFT, ms": fmean(ttft) if ttft else None,
        **(percentiles("TTFT", ttft) if ttft else {}),
        "mean ITL, ms": fmean(itl) if itl else None,
        **(percentiles("ITL", gaps) if gaps else {}),
        "steps": len(log.of(v.StepStarted)),
        "preemptions": len(log.of(v.Preempted)),
        "tokens found in the cache": cached_blocks * size,
        ADOPTED: adopted_blocks * size,
        "tokens computed twice": computed_twice(log),
        "output tokens": output,
    }
    lacked = [name for name, fact in _FACTS.items() if read(log).knowledge.lacks(fact)]
    return totals | dict.fromkeys(lacked)


def computed_twice(log: EventLog) -> int:
    """Return how many tokens were computed again because a preemption had freed their blocks."""
    computed: dict[int, int] = {}  # request -> the most tokens computed so far
    again = 0
    for event in log.of(v.StepScheduled):
        for row in event.rows:
            end = row.start + row.count - len(row.drafts)
            once = computed.get(row.request, 0)
            again += max(0, min(end, once) - row.start)
            computed[row.request] = max(end, once)
    return again


def is_better(name: str, a: float | None, b: float | None, times: Accuracy) -> str:
    """Return the run with the better measure, "a" or "b", or "".

    A time without a better run is "noise" if the two are too close to tell apart, and "unknown" if
    nothing says how much the times vary.
    """
    if a is None or b is None or a == b or not name.startswith((*_SMALLER, *_LARGER, "mean ")):
        return ""
    if name.endswith((", ms", "tokens/s")):
        if times.share is None:
            return "unknown"
        if times.is_noise("itl" if "ITL" in name else "ttft" if "TTFT" in name else "e2e", a, b):
            return "noise"
    return "b" if (b < a) != name.startswith(_LARGER) else "a"
