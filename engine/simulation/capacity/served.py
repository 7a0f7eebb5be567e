"""What became of each request of a sweep: one row, whatever served it.

All latencies count from the scheduled arrival, never from the moment of sending. A client that waits
for an answer before it sends the next request, or that is too busy to send one in time, leaves out
exactly the requests that would have waited: the times that it reports are too short. Gil Tene calls
this coordinated omission ("How NOT to measure latency", 2015). An open loop sends at the scheduled
times, whatever has been answered, and `late_ms` says when it could not.
"""

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.latencies import US_PER_MS, Latencies
from engine.simulation.quantile import quantile


class Served(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request. Instants are in ms since the beginning of its rate's run.

    rate         requests per second that were offered in the run
    scheduled    when the request was to arrive
    sent         when it was sent
    first, last  when its first and its last token came; None without one
    gaps         ms between two tokens; the tokens of one message are 0 ms apart
    error        why it has no complete answer; "" if it has one
    """

    rate: float
    request: int
    scheduled: float
    sent: float
    first: float | None = None
    last: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    gaps: list[float] = []
    error: str = ""

    @property
    def late_ms(self) -> float:
        """How late the client sent it."""
        return self.sent - self.scheduled

    @property
    def is_complete(self) -> bool:
        """Whether it was answered to the end."""
        return not self.error and self.first is not None

    def latency(self, name: str) -> float:
        """Return a latency in ms by its name in `slo.NAMES`; infinite without a complete answer."""
        if not self.is_complete or self.first is None or self.last is None:
            return float("inf")
        match name:
            case "ttft":
                return self.first - self.scheduled
            case "e2e":
                return self.last - self.scheduled
            case "tpot":
                return (self.last - self.first) / max(1, self.output_tokens - 1)
        return quantile(self.gaps, 0.99) if self.gaps else 0.0


def served_in(log: EventLog, rate: float) -> list[Served]:
    """Return the rows of a log's requests, in order of arrival. A request has a row for each sample."""
    latencies = Latencies()
    arrived: dict[int, v.RequestArrived] = {}
    tokens: dict[int, list[float]] = {}  # request -> the instants of its first and last token
    gaps: dict[int, list[float]] = {}
    errors: dict[int, str] = {}
    for event in log:
        latencies.note(event)
        match event:
            case v.RequestArrived():
                arrived |= dict.fromkeys(range(event.request, event.request + event.n), event)
            case v.StepFinished() if "end" in event.t:
                for row in event.tokens:
                    now = event.t["end"]
                    found = latencies.gaps(row, now)
                    gaps.setdefault(row.request, []).extend(gap for gap in found if gap is not None)
                    first, _ = tokens.get(row.request, (now, now))
                    tokens[row.request] = [first, now]
            case v.RequestFinished():
                errors[event.request] = "" if event.reason in ("stop", "length") else event.reason
    begin = min((event.t["at"] for event in arrived.values()), default=0)

    def ms(us: float) -> float:
        return (us - begin) / US_PER_MS

    return [
        Served(
            rate=rate,
            request=index,
            scheduled=ms(event.t["at"]),
            sent=ms(event.t["at"]),
            first=ms(tokens[request][0]) if request in tokens else None,
            last=ms(tokens[request][1]) if request in tokens else None,
            prompt_tokens=len(event.prompt),
            output_tokens=len(gaps.get(request, ())) + (request in tokens),
            gaps=gaps.get(request, []),
            error=errors.get(request, "unfinished"),
        )
        for index, (request, event) in enumerate(arrived.items())
    ]
