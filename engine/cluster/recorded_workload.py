"""The requests of a cluster's log as a workload, for `simulate_cluster`.

A request comes when the router first had it, with the prompt and the answer of the last replica that
computed for it. What another replica computed before that is left out: an attempt that failed, or the
prompt on a prefill replica. A connection (LMTP) has several streams, and each of them is a request.

The way from the router to the first replica takes as long as it did: gateway and replica have to read
and to write the request, which takes longer while they are busy.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from msgspec.structs import replace

from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog, Part, RunCounter
from engine.cluster.cluster_part import ClusterPart
from engine.core.log import vocabulary as v
from engine.simulation.cost_runner import US_PER_MS
from engine.simulation.log_part import started_of
from engine.simulation.recorded_drafts import Drafting, drafting_of
from engine.simulation.replayable import has_unknown
from engine.simulation.workload import (
    Answer,
    Arrival,
    Input,
    Workload,
    answers_of,
    arrival_of,
    earlier_inputs,
)


@dataclass(frozen=True, slots=True)
class RecordedWorkload:
    """The workload, and what is missing in it.

    cut      requests without an end in the log: they end after the tokens that they had
    absent   requests of which no replica's log has the prompt; they are left out
    numbers  a request's number in a replay -> its number in the log
    begun    of a `ClusterPart`, by replica: the inputs with which it begins
    """

    workload: Workload
    cut: int
    absent: int
    numbers: dict[int, int]
    begun: dict[str, list[Input]]


class Place(NamedTuple):
    """Where a request arrived."""

    part: Part
    arrived: v.RequestArrived

    @property
    def at(self) -> int:
        """When the request arrived there, in cluster time."""
        return int(self.arrived.t.get("at", 0) + self.part.run.offset)

    def way_us(self, routed: c.Routed) -> int:
        """Return how long a request was on its way there, if it was sent there first."""
        is_sent = routed.replica == self.part.run.replica and routed.reason != "pinned"
        return max(0, self.at - routed.t.get("at", self.at)) if is_sent else 0


def recorded_workload(log: ClusterLog, scheduler_ms: float = 0.0) -> RecordedWorkload:
    """Return the requests of a log. Raises ValueError if it has no token ids.

    scheduler_ms  how long a request takes from its arrival at a replica to the scheduler
    """
    parts = log.parts
    if any(has_unknown(part.log) for part in parts):
        raise ValueError(
            "the log has no token ids, so it cannot be replayed: record it with --trace-text on"
        )
    answers = {id(part.log): answers_of(part.log) for part in parts}
    ends = {
        id(part.log): {one.request: one.reason for one in part.log.of(v.RequestFinished)}
        for part in parts
    }
    sent, cut, absent = list[tuple[Arrival, int]](), 0, 0
    for routed, places in requests_of(log, parts):
        if not places:
            absent += 1
        for place in places if routed.reason == "pinned" else places[-1:]:
            number, part = place.arrived.request, id(place.part.log)
            at = place.at if routed.reason == "pinned" else routed.t.get("at", place.at)
            is_whole = ends[part].get(number) in ("stop", "length")
            cut += not is_whole
            arrival = _arrival(place.arrived, at, answers[part], is_whole=is_whole)
            arrival.way_ms = places[0].way_us(routed) / US_PER_MS + scheduler_ms
            sent.append((arrival, routed.request))
    sent.sort(key=lambda one: one[0].at_ms)
    arrivals = [arrival for arrival, _ in sent]
    firsts = accumulate((one.params.samples for one in arrivals), initial=1)
    numbers = {first: request for first, (_, request) in zip(firsts, sent, strict=False)}
    drafting = max(map(drafting_of, (part.log for part in parts)), key=_most, default=None)
    workload = Workload(list(arrivals), _tokenizer(parts, arrivals), drafting)
    begun = dict[str, list[Input]]()
    for own in parts if isinstance(log, ClusterPart) else ():
        if isinstance(own.log[0], v.Keyframe) and own.run.replica not in begun:
            inputs = earlier_inputs(own.log, answers[id(own.log)])
            begun[own.run.replica] = [_in_cluster(one, own.run.offset) for one in inputs]
    return RecordedWorkload(workload, cut, absent, numbers, begun)


def _in_cluster(one: Input, offset: int) -> Input:
    """Return an input of a replica at its time in the cluster."""
    one.step, one.at_ms = None, one.at_ms + offset / US_PER_MS
    return one


def _most(drafting: Drafting | None) -> int:
    return drafting.most if drafting else 0


def _tokenizer(parts: list[Part], arrivals: list[Arrival]) -> dict[str, Any]:
    """Return the log's tokenizer; if no replica's log has its start, what the answers show of it."""
    for part in parts:
        if (started := started_of(part.log)) is not None:
            return started.tokenizer
    answers = [answer for one in arrivals for answer in one.answers.values() if not one.params.stop]
    tokens = [one.prompt for one in arrivals] + [answer.ids for answer in answers]
    ends = {answer.ids[-1] for answer in answers if answer.stopped and answer.ids}
    size = max((max(one, default=0) for one in tokens), default=0) + 1
    return {"name": "recorded tokens", "vocab_size": size, "eos_ids": sorted(ends)}


def requests_of(log: ClusterLog, parts: list[Part]) -> list[tuple[c.Routed, list[Place]]]:
    """Return the first decision about each request, and where it arrived at a replica, in order."""
    counter = RunCounter()
    arrived = {
        (part.run.replica, part.run.number, event.request): Place(part, event)
        for part in parts
        for event in part.log.of(v.RequestArrived)
    }
    first, places = dict[int, c.Routed](), dict[int, list[Place]]()
    for event in log:
        counter.take(event)
        match event:
            case c.Routed():
                first.setdefault(event.request, event)
                places.setdefault(event.request, [])
            case c.Placed(replica=replica) if event.request in first:
                place = arrived.get((replica, counter.number(replica), event.its_request))
                if place is not None:
                    places[event.request].append(place)
    return [(routed, places[request]) for request, routed in first.items()]


def _arrival(
    event: v.RequestArrived, at_us: int, answers: dict[int, Answer], *, is_whole: bool
) -> Arrival:
    """Return a request as it was sent first, without the output that a replica had begun with."""
    one = arrival_of(event, answers, at_us / US_PER_MS)
    one.begun = None
    if not is_whole:
        most = max([1, *(answer.length for answer in one.answers.values())])
        least = min(one.params.min_tokens, most)
        one.params = replace(one.params, max_tokens=most, min_tokens=least)
    return one
