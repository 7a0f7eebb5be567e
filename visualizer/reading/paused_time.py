"""The time in which the engine was paused and no forward pass ran: a held engine is not a slow one.

`visualizer/frontend/src/model/paused_time.ts` does the same.
"""

from bisect import bisect_right

from engine.core.log import vocabulary as v


class PausedTime:
    """Collects the times from the events of a log, in order.

    intervals  (begin, end) in microseconds since the run started, in order
    """

    def __init__(self) -> None:
        self.intervals: list[tuple[int, int]] = []
        self._since: int | None = None  # when the current pause began
        self._ready = 0  # when the last forward pass ended

    def note(self, event: v.Event) -> None:
        """Add the next event."""
        match event:
            case v.Keyframe():
                self._since = 0 if event.state.paused else None
            case v.EnginePaused():
                self._since = event.t.get("at")
            case v.EngineResumed():
                self._add(event.t.get("at", 0))
                self._since = None
            case v.StepFinished() if "end" in event.t:
                launched = event.t.get("launched", event.t.get("scheduled", event.t["end"]))
                self._add(launched)
                self._ready = event.t.get("ready", event.t["end"])
                self._remove(launched, self._ready)

    def between(self, begin: int, end: int) -> int:
        """Return for how much of the time from `begin` to `end` it was paused."""
        total, at = 0, bisect_right(self.intervals, begin, key=lambda interval: interval[1])
        while at < len(self.intervals) and self.intervals[at][0] < end:
            total += min(end, self.intervals[at][1]) - max(begin, self.intervals[at][0])
            at += 1
        return total

    def _add(self, until: int) -> None:
        """Add the current pause up to now."""
        if self._since is not None and (begin := max(self._since, self._ready)) < until:
            self.intervals.append((begin, until))
            self._since = until

    def _remove(self, begin: int, end: int) -> None:
        """Remove the time of a forward pass that was running when a pause ended."""
        after = []
        while self.intervals and self.intervals[-1][1] > begin:
            lo, hi = self.intervals.pop()
            after += [(max(lo, end), hi)] * (hi > end) + [(lo, begin)] * (lo < begin)
        self.intervals += after[::-1]
