"""What a run of the playground was for each of its requests, on wall time."""

from dataclasses import dataclass
from functools import cached_property

from engine.core.log import EventLog
from visualizer import read
from visualizer.reading.messages import MESSAGES
from visualizer.reading.waterfall import RequestTime, Span
from visualizer.reading.waterfall.causes import LOST, WAITING
from visualizer.reading.waterfall.words import cause_name


@dataclass(frozen=True)
class Person:
    """A request: its name, its place in order of arrival, its prompt and its time, in ms.

    The place decides the hue: all requests are seen at once, so none gets the hue of one that has left.
    """

    name: str
    place: int
    priority: int
    prompt_tokens: int
    arrived: float
    first_token: float | None
    end: float
    time: RequestTime

    @property
    def ttft(self) -> float | None:
        """Arrival to first token."""
        return None if self.time.ttft is None else self.time.ttft / 1000

    def held_up_by(self) -> tuple[str, float] | None:
        """Return what most of the wait for the first token was for, and its ms; None: no wait."""
        waits: dict[str, float] = {}
        for span in self.time.spans:
            within = min(span.end, self.time.first_token or span.end) - span.start
            if within > 0 and span.cause in (*WAITING, *LOST):
                waits[span.cause] = waits.get(span.cause, 0) + within / 1000
        return max(waits.items(), key=lambda item: item[1]) if waits else None


class People:
    """All requests of a run, in order of arrival."""

    def __init__(self, log: EventLog) -> None:
        self.log = log

    @cached_property
    def all(self) -> list[Person]:
        """The requests."""
        waterfall = read(self.log).waterfall
        people: list[Person] = []
        for row in read(self.log).request_rows:
            time = waterfall[row.request]
            if not time.spans:
                continue
            first = None if time.first_token is None else time.first_token / 1000
            people.append(
                Person(
                    waterfall.names[row.request],
                    len(people),
                    row.priority,
                    row.prompt_tokens,
                    time.spans[0].start / 1000,
                    first,
                    time.spans[-1].end / 1000,
                    time,
                )
            )
        return people

    def named(self, name: str) -> Person | None:
        """Return a person by name; an empty name is the one with the latest first token."""
        if not name:
            return max(self.all, key=lambda one: one.ttft or 0, default=None)
        return next((one for one in self.all if one.name == name), None)


def wait_words(cause: str) -> str:
    """Return what the time of a cause is: "a wait for a seat"."""
    reason = MESSAGES["reasons"].get(cause, {})
    waited_for = reason.get("waited_for")
    return f"a wait for {waited_for}" if waited_for else f"lost: {cause_name(cause)}"


def joined(spans: list[Span]) -> list[Span]:
    """Return the spans; a step's decode, and neighbours that wait for one cause, are one."""
    shown: list[Span] = []
    for span in spans:
        last = shown[-1] if shown else None
        waits = span.cause in (*WAITING, "preempted") and last and last.cause == span.cause
        if last and (waits or (span.cause == "others_prefill" and last.step == span.step)):
            shown[-1] = last._replace(end=span.end)
        else:
            shown.append(span)
    return shown
