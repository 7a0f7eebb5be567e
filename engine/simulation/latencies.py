"""How long requests waited for their tokens: TTFT and ITL, for rows, metrics and "what if" alike.

TTFT is the time from a request's arrival to its first token, ITL the time between two of its tokens.
Both leave out the time in which the engine was paused and no forward pass ran, because a held engine is
not a slow one. `visualizer/frontend/src/model/paused_time.ts` collects that time in the browser.
"""

from bisect import bisect_right
from collections.abc import Callable

from engine.core.log import vocabulary as v

US_PER_MS = 1000


class PausedTime:
    """Collects the paused time from the events of a log, in order.

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


class Latencies:
    """The latencies of a log's requests and samples in ms, while the log is read.

    at      maps the log's instants, in us, to those that count, for example to predicted ones
    since   what arrived before this instant, in us, counts as if it arrived then; None: it is unknown
            when the requests of a keyframe arrived
    paused  the time in which the engine was paused
    """

    def __init__(self, at: Callable[[float], float] = float, since: int | None = None) -> None:
        self.paused = PausedTime()
        self._at, self._since = at, since
        self._arrived: dict[int, int | None] = {}  # None if the log does not say
        self._last: dict[int, int] = {}  # request -> the time of its last token

    def note(self, event: v.Event) -> None:
        """Add the next event."""
        self.paused.note(event)
        match event:
            case v.Keyframe() if self._since is not None:
                self._arrived |= dict.fromkeys(
                    (one.id for one in event.state.requests), self._since
                )
            case v.RequestArrived():
                arrived, since = event.t.get("at"), self._since
                is_earlier = arrived is not None and since is not None and arrived < since
                self._arrived[event.request] = since if is_earlier else arrived
            case v.Forked():
                self._arrived[event.request] = self._arrived.get(event.parent)

    def since_arrival(self, request: int, time: int | None) -> float | None:
        """Return the time from a request's arrival; None if either time is unknown.

        At the step in which the request gets its first token, this is its TTFT.
        """
        arrived = self._arrived.get(request)
        return None if arrived is None or time is None else self.between(arrived, time)

    def gaps(self, gain: v.TokenRow, end: int | None) -> list[float | None]:
        """Return the gap before each of a request's new tokens; `end` is their step's end.

        Tokens of one step are 0 ms apart. The first is None for the first token in the log, and all
        are None in a log without times.
        """
        if end is None:
            return [None] * len(gain.ids)
        last = self._last.get(gain.request)
        self._last[gain.request] = end
        first = None if last is None else self.between(last, end)
        return [first, *[0.0] * (len(gain.ids) - 1)]

    def e2e(self, request: int, end: int | None) -> float | None:
        """Return the whole time from a request's arrival to `end`, the paused time included."""
        arrived = self._arrived.get(request)
        if arrived is None or end is None:
            return None
        return (self._at(end) - self._at(arrived)) / US_PER_MS

    def between(self, begin: int, end: int) -> float:
        """Return the time between two instants without that in which the engine was paused."""
        whole = self._at(end) - self._at(begin)
        return (whole - self.paused.between(begin, end)) / US_PER_MS

    def forget(self, request: int) -> None:
        """Drop a request that has ended, because a server's log has no end."""
        self._arrived.pop(request, None)
        self._last.pop(request, None)
