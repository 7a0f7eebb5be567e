"""Lesson 20: how many requests a second can a server take?"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import call
from checks.judging import counted
from engine.simulation.capacity.point import Point
from engine.simulation.capacity.rates import next_rate, usable
from engine.simulation.capacity.served import Served
from engine.simulation.capacity.slo import Slo

# When a request was to arrive, when it was sent, and when its first token came, in ms.
Row = tuple[float, float, float | None]
Measure = Callable[[float], Sequence[Row]]
Capacity = Callable[[Measure, float], float]

CLOSE = 1.05  # how close the answer must be to the capacity
MOST = 40  # rates that may be measured
LOWEST = 0.1  # requests per second

ANSWERS = {
    "even": Answer(
        "about 80 ms",
        {
            "about 390 ms": "The load is the same, with as many requests that are as long. But is it "
            "the load that makes them wait?",
            "about 250 ms": "Half of the wait would come from the arrivals, and half from the load. "
            "But does an evenly spaced request ever find all seats taken?",
            "about 10 ms": "Nothing stands in a queue, but a prompt has to be computed, and a step of "
            "64 tokens takes 26 ms.",
        },
        fits=lambda ms: 60 < ms < 110,
    ),
    "seats": Answer(
        "about 18",
        {
            "24: twice as much": "Twice the seats would take twice the requests if seats shared "
            "nothing. Do they?",
            "12, as before": "The machine is not faster, but how much of a step's price depends on how "
            "many sit in it?",
            "less than 12": "Steps get longer, and each request waits for them, but each step does "
            "twice as much.",
        },
        fits=lambda rate: 17 <= rate <= 19,
    ),
}
HINTS = (
    "First write a function that says whether one rate is fine: sort the waits, and look at the one "
    "that 99 of 100 do not exceed. From which of the three times does a wait count?",
    "Double the rate until it is too much, and halve it if even the first one was. Now you have a low "
    "rate that is fine and a high one that is not: measure between them until they are close.",
)


class Promise(Promises):
    """What capacity() promises."""

    NUMBER = "it returns a number of requests per second, and measures only such numbers"
    FEW = f"it measures at most {MOST} rates, because each of them costs a minute"
    MEETS = "at its rate, 99 of 100 first tokens come within the limit"
    HIGHEST = "a rate 5% higher would be too much"
    SCHEDULED = "a wait begins when a request was to arrive, not when it was sent"
    NO_TOKEN = "a request that gets no token is not within the limit"
    SOME = "one slow request in 200 does no harm: that is fewer than one in 100"


@dataclass(frozen=True)
class Server:
    """A server whose capacity is known.

    kind      what its requests do when it gets more than its capacity: see `rows`
    capacity  requests per second
    limit_ms  of the wait
    """

    kind: str
    capacity: float
    limit_ms: float = 1000.0
    requests: int = 200

    def __str__(self) -> str:
        return (
            f"A server that can take {self.capacity:g} requests/s with a p99 of {self.limit_ms:g} ms. "
            f"{_KINDS[self.kind]}"
        )

    def rows(self, rate: float) -> list[Row]:
        """Return what became of the requests at a rate, in any order."""
        # The wait grows with the load; at the capacity it is a little less than the limit.
        grown = 0.9999 * min(rate / self.capacity, 1e6) ** 2
        rows: list[Row] = []
        for number in range(self.requests):
            due = 1000 * number / rate
            is_slow = number % 20 == 7  # one in 20
            wait, late = 0.02 * self.limit_ms, 0.0
            match self.kind:
                case "steady":
                    wait = grown * self.limit_ms
                case "tail":
                    wait = grown * self.limit_ms if is_slow else wait
                case "stray":
                    wait = 9 * self.limit_ms if number == 3 else grown * self.limit_ms
                case "late":
                    late = max(0.0, grown * self.limit_ms - wait)
            rejected = self.kind == "rejects" and is_slow and grown > 1
            rows.append((due, due + late, None if rejected else due + late + wait))
        random.Random(self.requests).shuffle(rows)
        return rows


_KINDS = {
    "steady": "All requests wait equally long.",
    "tail": "One request in 20 waits much longer than the others.",
    "stray": "One request in 200 is always slow.",
    "late": "The client cannot keep up: it sends late.",
    "rejects": "If it gets more, it rejects one request in 20.",
}
_MEETS = {
    "tail": Promise.MEETS,
    "late": Promise.SCHEDULED,
    "rejects": Promise.NO_TOKEN,
}
_HIGHEST = {"stray": Promise.SOME}


def cases() -> Iterator[Server]:
    """Yield servers, the simplest first."""
    yield from (Server("steady", rate, requests=100) for rate in (12.0, 3.0, 87.0, 0.4, 640.0))
    yield Server("steady", 12.0, limit_ms=200, requests=100)
    for kind in ("tail", "stray", "late", "rejects"):
        yield from (Server(kind, rate, requests=200) for rate in (12.0, 0.7, 310.0))


def attempt(capacity: Capacity, server: Server) -> None:
    """Ask for the capacity of a server. Raises Broken for the first broken promise."""
    measured = list[float]()

    def measure(rate: float) -> list[Row]:
        if not _is_rate(rate):
            raise Promise.NUMBER.broken(
                f"You measured a rate of {rate!r}.",
                "How does the rate change from one to the next?",
            )
        measured.append(rate)
        if len(measured) > MOST:
            # All searches that are long have failed on a steady server; this one misjudges its rows.
            promise = (_MEETS | _HIGHEST).get(server.kind, Promise.FEW)
            raise promise.broken(
                f"You measured {_listed(measured[:4])}, and so on up to {measured[-1]:.3g} "
                "requests/s.",
                _example(server.rows(rate), server)
                or "How much closer to the answer is each measurement than the one before?",
            )
        return server.rows(rate)

    found = call(capacity, measure, server.limit_ms)
    if not _is_rate(found):
        raise Promise.NUMBER.broken(f"You returned {found!r}.", "What does capacity() return?")
    rows = server.rows(found)
    if found > server.capacity * 1.0001:
        over = sum(first is None or first - due > server.limit_ms for due, _, first in rows)
        raise _MEETS.get(server.kind, Promise.MEETS).broken(
            f"You returned {found:.4g} requests/s after {counted(len(measured), 'measurement')}. "
            f"There, {over} of {len(rows)} requests are not within {server.limit_ms:g} ms.",
            _example(rows, server),
        )
    if found * CLOSE < server.capacity * 0.9999:
        raise _HIGHEST.get(server.kind, Promise.HIGHEST).broken(
            f"You returned {found:.4g} requests/s after {counted(len(measured), 'measurement')}: "
            f"{_listed(measured[-4:])} were the last ones.",
            "At which rate does your search stop, and what has it seen by then?",
        )


def _is_rate(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and isfinite(value)
        and value > 0
    )


def _listed(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:.3g}" for rate in rates) or "none"


def _example(rows: Sequence[Row], server: Server) -> str:
    """Return one of the rows that are not within the limit, as a place to look at; "" without one."""
    over = (row for row in rows if row[2] is None or row[2] - row[0] > server.limit_ms)
    due, sent, first = next(over, (0.0, 0.0, 0.0))
    if first == 0.0:
        return ""
    token = "no token" if first is None else f"its first token at {first:.0f} ms"
    return f"One was to arrive at {due:.0f} ms, was sent at {sent:.0f} ms, and got {token}."


def by_sweep(measure: Measure, limit_ms: float) -> float:
    """Find the capacity as `engine.sweep` does. It runs until the learner's part passes."""
    points = list[Point]()
    best: Point | None = None
    goals = Slo({"ttft": limit_ms})
    while (rate := next_rate(points, limit_ms)) is not None:
        rows = [
            Served(
                rate=rate, request=number, scheduled=due, sent=sent, first=first, last=first,
                error="" if first is not None else "no token",
            )
            for number, (due, sent, first) in enumerate(measure(rate))
        ]  # fmt: skip
        points.append(Point(rate, rows, goals))
        best = usable(points)
        if best and any(best.rate < point.rate <= 1.1 * best.rate for point in points):
            break  # the marks that are left are not asked for
    return best.rate if best else LOWEST


def adapt(capacity: Capacity | None) -> Capacity:
    """Return the learner's function, or the sweep's own search."""
    return capacity or by_sweep
