"""What happened to a request of a cluster: its way from replica to replica, and its time at each.

The gateway's events say where the router sent it and why, which hops failed, and which KV moved. What a
replica did with it is answered from the log of the replica's run, by the same code as for one engine.
"""

from collections.abc import Iterator
from typing import NamedTuple

from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog, RunCounter
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import RequestArrived
from visualizer.reading.durations import duration
from visualizer.reading.messages import count
from visualizer.reading.tour.cluster import BECAUSE
from visualizer.reading.waterfall import Waterfall
from visualizer.reading.why.answer import why
from visualizer.reading.why.find import request_named, request_names
from visualizer.reading.why.log_index import WhyError, index_of

HOPS: dict[c.Hop, str] = {
    "render": "reading its prompt",
    "queue": "waiting for a replica",
    "prefill": "computing its prompt",
    "export": "reading the KV of its prompt",
    "adopt": "taking over the KV of its prompt",
    "first_token": "the wait for its first token",
    "stream": "its stream",
}
NOTICED: dict[c.Noticed, str] = {
    "unreachable": "it could not be reached",
    "closed": "the connection broke",
    "refused": "it takes no requests",
    "error": "it answered with an error",
    "silent": "it fell silent",
    "late": "the deadline passed",
}
REMEDIES: dict[c.Remedy, str] = {
    "waits": "the request waits until a replica accepts it",
    "elsewhere": "another replica gets the request",
    "continued": "another replica goes on after the tokens that the client has",
    "here": "the decode replica computes the prompt itself",
    "ended": "the client gets an error",
}


class Place(NamedTuple):
    """Where a request was: the name of the part of the log, that log, and its number in it."""

    name: str
    log: EventLog
    its_request: int

    def has(self, step: int, *, alive: bool = False) -> bool:
        """Return whether the log has a step, and whether the request was `alive` then."""
        index = index_of(self.log)
        at, span = index.steps.get(step), index.spans.get(self.its_request)
        if at is None or span is None:
            return False
        return not alive or (span.begin is not None and span.begin <= at <= span.end)


class RequestWay:
    """The way of one request through a cluster. Printing it tells all of it.

    number  the request's number in the cluster
    name    its label, with its number if others have the same
    events  what the gateway did about it, in order
    places  the runs of replicas that it arrived at, in order
    """

    def __init__(self, log: ClusterLog, request: int | str) -> None:
        """Raises WhyError for a request that was not routed."""
        names = request_names(log)
        self.number = request_named(names, request)
        self.name = names[self.number]
        self.events = list[c.ClusterEvent]()
        placed = list[tuple[c.Placed, int]]()
        counter = RunCounter()
        for event in log.gateway():
            counter.take(event)
            if getattr(event, "request", None) == self.number:
                self.events.append(event)
            if isinstance(event, c.Placed) and event.request == self.number:
                placed.append((event, counter.number(event.replica)))
        parts = log.parts if placed else []
        runs = {(one.run.replica, one.run.number): one.run for one in parts}
        part_names = {id(one.log): one.name for one in parts}
        self.places = list[Place]()
        for event, number in placed:
            part = runs[event.replica, number].part_with(event.its_request)
            self.places.append(Place(part_names[id(part)], part, event.its_request))
        # The router knows no prompt if no replica could render it.
        known = [
            event.prompt - event.output for event in self.events if isinstance(event, c.Routed)
        ]
        known += [
            len(event.prompt)
            for place in self.places
            for event in place.log.of(RequestArrived)
            if event.request == place.its_request
        ]
        self._prompt = max(known)

    def __str__(self) -> str:
        return "\n".join([self._headline(), *self._lines(), *self._at_replicas()])

    def why(self, step: int) -> str:
        """Say what happened to it in a step, at each replica that had it in its step of that number.

        Raises WhyError for a step that none of them has.
        """
        with_step = [place for place in self.places if place.has(step)]
        there = [place for place in with_step if place.has(step, alive=True)]
        if places := there or with_step[-1:]:
            told = [(place.name, why(place.log, place.its_request, step)) for place in places]
            return "\n\n".join(f"Replica {name}. {words}" for name, words in told)
        names = ", ".join(place.name for place in self.places) or "none"
        raise WhyError(f"step {step} is not in the log of a replica that had {self.name}: {names}")

    def _headline(self) -> str:
        routed = [event for event in self.events if isinstance(event, c.Routed)]
        replicas = list(dict.fromkeys(event.replica for event in routed))
        many = "replica" if len(replicas) == 1 else "replicas"
        prompt = count(self._prompt, "prompt token")
        where = f"{many} {', '.join(replicas)}"
        return f"{self.name}, request {self.number} of the cluster, {prompt}: {where}"

    def _lines(self) -> Iterator[str]:
        for event in self.events:
            at = event.t.get("at")  # type: ignore[attr-defined]
            when = f"{'' if at is None else duration(at / 1000):>10}  "
            match event:
                case c.Routed():
                    yield when + self._decision(event)
                    yield from (f"{'':>12}{line}" for line in _compared(event))
                case c.HopFailed():
                    yield when + _failure(event)
                case c.Moved():
                    took = f" in {duration(event.t['us'] / 1000)}" if "us" in event.t else ""
                    yield (
                        f"{when}KV of {count(event.tokens, 'token')} moved from replica "
                        f"{event.source} to replica {event.target}{took}"
                    )
                case c.RequestLost():
                    yield f"{when}lost with replica {event.replica}: its client got an error"

    def _decision(self, event: c.Routed) -> str:
        because = BECAUSE[event.reason]
        if event.reason != "pinned" and list(event.loads) == [event.replica]:
            because = "the router could choose no other one"
        words = f"routed to replica {event.replica}, because {because}"
        if event.output:
            return f"{words}; it goes on after {count(event.output, 'token')} that the client has"
        return words if event.attempt == 1 else f"{words} (attempt {event.attempt})"

    def _at_replicas(self) -> Iterator[str]:
        for place in self.places:
            yield ""
            try:
                time = Waterfall(place.log)[place.its_request]
            except (WhyError, KeyError):
                yield f"replica {place.name}: its log does not have the request"
                continue
            yield f"replica {place.name}, its request {place.its_request}: {time}"


def _compared(event: c.Routed) -> Iterator[str]:
    """Yield a line for each replica that the router could choose: what it knew, and the score."""
    for replica in sorted(event.loads | event.hits | event.scores):
        words = list[str]()
        if event.hits:
            hit = event.hits.get(replica, 0)
            what = "tokens" if event.output else "prompt tokens"
            asked = event.prompt + event.output
            words.append(f"{hit} of {asked} {what} predicted in its cache")
        words.append(count(event.loads.get(replica, 0), "request"))
        if replica in event.scores:
            terms = event.terms.get(replica, {})
            parts = " + ".join(f"{_number(term)} {name}" for name, term in terms.items())
            words.append(f"score {_number(event.scores[replica])}" + f" = {parts}" * bool(parts))
        for name, value in event.ties.get(replica, {}).items():
            words.append(f"{name.replace('_', ' ')} {_number(value)}")
        yield f"replica {replica}: {', '.join(words)}" + ", chosen" * (replica == event.replica)


def _failure(event: c.HopFailed) -> str:
    where = f" at replica {event.replica}" if event.replica else ""
    waited = f" after {duration(event.t['us'] / 1000)}" if "us" in event.t else ""
    noticed = NOTICED[event.noticed]
    details = f" ({event.why})" if event.why not in ("", noticed) else ""
    return (
        f"{HOPS[event.hop]} failed{where}{waited}, because {noticed}{details}: "
        f"{REMEDIES[event.remedy]}"
    )


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
