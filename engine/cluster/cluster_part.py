"""The end of a cluster's log that can be replayed by itself: it begins where the replicas were.

    part = ClusterPart.cut(log, events=30_000, before=15_000)

Each replica begins with a keyframe between two of its steps, so a replay begins with its cache
and its requests. The replay's router is told what happened before, as far as it may remember it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile

from engine.cluster.cluster_log import ClusterLog, ClusterState, ReplicaRun
from engine.cluster.events import AnyClusterEvent, Of, Placed, Routed
from engine.core.log import EventLog, LogError, State
from engine.core.log import vocabulary as v
from engine.simulation.log_part import LogPart

Place = tuple[str, int]  # a replica, and a request there
_BEGINNINGS = (v.RunStarted, v.Keyframe)
_COMPARED = 20  # events that tell one run from another


class ClusterPart(ClusterLog):
    """The end of a log.

    before   the events before it, after the state that they begin with
    arrived  the requests that were routed then, by number
    live     the numbers of the requests that had not ended then, by where they were
    started  by replica: the beginning of its run, if the log has it
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: list[AnyClusterEvent] = []
        self.arrived: dict[int, v.RequestArrived] = {}
        self.live: dict[Place, int] = {}
        self.started: dict[str, v.RunStarted] = {}

    @classmethod
    def cut(cls, log: ClusterLog, events: int, before: int) -> "ClusterPart":
        """Return the last `events` events of a log; the router gets to know the `before` ones."""
        last = log.since(log.next_seq - events - before)
        earlier, own = last[:-events], last[-events:]
        runs, part = log.runs, cls()
        begins, state, placed = _begins(own), ClusterState(), dict[Place, int]()
        for event in _gateway_before(log, last):
            state.add(event)
            if isinstance(event, Placed):
                placed[event.replica, event.its_request] = event.request
        state.states = _states(runs, state.joined, last, _firsts(last))
        part.before = [*state.head(), *earlier]
        for event in earlier:
            if not isinstance(event, Of):
                state.add(event)
        for event in last:
            if isinstance(event, Placed):
                placed.setdefault((event.replica, event.its_request), event.request)
        state.states = _states(runs, state.joined, own, begins)
        part.started = {
            replica: first
            for replica in state.states
            if isinstance(first := runs[replica][-1].parts[0][0], v.RunStarted)
        }
        arrived = {
            placed[place]: event for place, event in _arrivals(last).items() if place in placed
        }
        places = ((name, one) for name, its in state.states.items() for one in its.requests)
        part.live = {place: placed[place] for place in places if place in placed}
        live = {*part.live.values()}
        on_the_way = {
            placed[place]
            for place in _arrivals(_after(own, begins))
            if place in placed and placed[place] not in live
        }
        part.arrived = {
            request: event for request, event in arrived.items() if request not in on_the_way
        }
        for event in state.head():
            part.append(event)
        for event in earlier:
            if isinstance(event, Routed | Placed) and event.request in on_the_way:
                part.append(event)
        for event in _after(own, begins):
            is_known = isinstance(event, Routed | Placed) and event.request in live
            (part.before if is_known else part).append(event)
        return part

    @property
    def runs(self) -> dict[str, list[ReplicaRun]]:
        """See `ClusterLog`. The first part of a replica knows the beginning of its run."""
        runs = super().runs
        for replica, started in self.started.items():
            parts = runs[replica][0].parts
            parts[0] = LogPart.after(started, [*parts[0]])
        return runs


def _gateway_before(log: ClusterLog, last: Sequence[AnyClusterEvent]) -> Iterator[AnyClusterEvent]:
    """Yield what the gateway did before the last events of a log."""
    count = sum(not isinstance(event, Of) for event in log.gateway())
    own = sum(not isinstance(event, Of) for event in last)
    return islice((one for one in log.gateway() if not isinstance(one, Of)), count - own)


def _firsts(events: Sequence[AnyClusterEvent]) -> dict[str, int]:
    """Return the number of each replica's first event."""
    firsts = dict[str, int]()
    for event in events:
        if isinstance(event, Of):
            firsts.setdefault(event.replica, event.seq)
    return firsts


def _begins(events: Sequence[AnyClusterEvent]) -> dict[str, int]:
    """Return the number of the event with which each replica begins, the first between two steps."""
    begins, in_step = dict[str, int](), dict[str, bool]()
    for event in events:
        if isinstance(event, Of) and isinstance(event.event, v.StepStarted | v.StepFinished):
            in_step.setdefault(event.replica, isinstance(event.event, v.StepFinished))
    for event in events:
        if isinstance(event, Of):
            arrives = isinstance(event.event, v.RequestArrived) and not in_step.get(event.replica)
            if arrives or isinstance(event.event, (v.StepStarted, *_BEGINNINGS)):
                begins.setdefault(event.replica, event.seq)
    return _firsts(events) | begins


def _after(
    events: Sequence[AnyClusterEvent], begins: Mapping[str, int]
) -> Iterator[AnyClusterEvent]:
    """Yield the events without those that replicas sent before they begin."""
    begun = set[str]()
    for event in events:
        if isinstance(event, Of) and event.replica not in begun:
            if event.seq != begins[event.replica]:
                continue
            begun.add(event.replica)
        yield event


def _arrivals(events: Iterable[AnyClusterEvent]) -> dict[Place, v.RequestArrived]:
    """Return the requests that arrived at replicas."""
    return {
        (event.replica, event.event.request): event.event
        for event in events
        if isinstance(event, Of) and isinstance(event.event, v.RequestArrived)
    }


def _states(
    runs: Mapping[str, list[ReplicaRun]],
    replicas: Iterable[str],
    events: Sequence[AnyClusterEvent],
    begins: Mapping[str, int],
) -> dict[str, State]:
    """Return the state of each replica before the event with which it begins; else its last one."""
    later: dict[str, list[Of]] = {}
    for event in _after(events, begins):
        if isinstance(event, Of):
            later.setdefault(event.replica, []).append(event)
    states = dict[str, State]()
    for replica in replicas:
        if replica not in later and replica in runs:
            states[replica] = runs[replica][-1].parts[-1].state()
        elif own := [*takewhile(lambda of: not isinstance(of.event, _BEGINNINGS), later[replica])]:
            part = _part_with(own[:_COMPARED], runs[replica])
            states[replica] = part.state(own[0].seq - 1)
    return states


def _part_with(events: Sequence[Of], runs: Sequence[ReplicaRun]) -> EventLog:
    """Return the latest part of a replica that has these events; its runs use the same numbers."""
    first = events[0].seq
    for part in (part for run in reversed(runs) for part in reversed(run.parts)):
        at = first - (part.next_seq - len(part))
        if 0 < at < len(part) and part[at : at + len(events)] == [of.event for of in events]:
            return part
    raise LogError(f"replica {events[0].replica}: its events are in none of its runs")
