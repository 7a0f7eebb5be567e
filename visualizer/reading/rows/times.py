"""Times of the rows: microseconds in the events, milliseconds in the rows."""

from engine.core.log import vocabulary as v
from visualizer.reading.paused_time import PausedTime

US_PER_MS = 1000


def in_ms(us: int | None) -> float | None:
    """Return a time in milliseconds; None stays None."""
    return None if us is None else us / US_PER_MS


class TokenGaps:
    """The times between consecutive output tokens of each request, while a log is read."""

    def __init__(self, paused: PausedTime) -> None:
        self._paused = paused
        self._last: dict[int, int] = {}  # request -> the time of its last token

    def before(self, gain: v.TokenRow, end: int | None) -> list[float | None]:
        """Return the gap before each of a request's new tokens, in ms; `end` is their step's end.

        The time in which the engine was paused is left out. Tokens of one step are 0 ms apart. The
        first is None for the first token in the log, all are None in a log without times.
        """
        if end is None:
            return [None] * len(gain.ids)
        last = self._last.get(gain.request)
        self._last[gain.request] = end
        first = None if last is None else in_ms(end - last - self._paused.between(last, end))
        return [first, *[0.0] * (len(gain.ids) - 1)]

    def forget(self, request: int) -> None:
        """Drop a request that has ended, because a server's log has no end."""
        self._last.pop(request, None)
