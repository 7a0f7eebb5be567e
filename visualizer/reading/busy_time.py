"""The busy time of a run: that in which its steps ran, without pauses and time without a request."""

from engine.core.log import EventLog
from engine.core.log import vocabulary as v


def busy_us(log: EventLog) -> tuple[int, int]:
    """Return the time in which steps ran, and that from the first step to the last one's end, in us.

    Asynchronous steps overlap, and an instant at which two of them ran counts once.
    """
    times = [event.t for event in log.of(v.StepFinished) if "start" in event.t]
    busy, now = 0, 0
    for t in times:
        busy += max(0, t["end"] - max(t["start"], now))
        now = max(now, t["end"])
    return busy, now - times[0]["start"] if times else 0
