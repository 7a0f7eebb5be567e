"""Why a request of a cluster missed: what its replica answers, and what other replicas had cached."""

from dataclasses import replace

from engine.cluster.cluster_log import ClusterLog, ClusterState, RunCounter
from engine.cluster.events import Of, Placed, Routed
from engine.core.log import vocabulary as v
from visualizer.reading.why.find import request_named
from visualizer.reading.why.miss import MissKind, WhyMissed
from visualizer.reading.why.missed import why_missed

# Reasons that its own replica does not give: another replica is then the better answer.
_REPLACED: tuple[MissKind, ...] = ("never_stored", "shorter", "differs", "first", "computing")


def why_missed_in_cluster(log: ClusterLog, request: int | str) -> WhyMissed:
    """Explain how much of a request's prompt its first replica had cached, and why not more.

    request  its number in the cluster, or its label

    For the other replicas, this is what the gateway knew when it learned of the admission. Raises
    WhyError for a request that is not in the log.
    """
    names, places = dict[int, str](), dict[int, tuple[Placed, int]]()
    counter = RunCounter()
    for event in log.gateway():
        counter.take(event)
        match event:
            case Routed():
                names.setdefault(event.request, event.label or f"r{event.request}")
            case Placed():
                places.setdefault(event.request, (event, counter.number(event.replica)))
    number = request_named({one: names.get(one, f"r{one}") for one in places}, request)
    place, run = places[number]
    part = log.runs[place.replica][run - 1].part_with(place.its_request)
    answer = why_missed(part, place.its_request)
    if answer.kind in ("whole", "off", "scored", "waiting", "before", "unknown"):
        return answer
    replica, tokens = _longest_elsewhere(log, place, run, answer)
    if tokens <= answer.found:
        return answer
    kind = "other_replica" if answer.kind in _REPLACED else answer.kind
    return replace(answer, kind=kind, elsewhere=(replica, tokens))


def _longest_elsewhere(
    log: ClusterLog, place: Placed, run: int, answer: WhyMissed
) -> tuple[str, int]:
    """Return the other replica that had most of the prompt cached, and how much, in whole blocks."""
    cluster, counter = ClusterState(), RunCounter()
    for event in log:
        counter.take(event)
        match event:
            case Of(replica=place.replica, event=v.Admitted(request=place.its_request)) if (
                counter.number(place.replica) == run
            ):
                break
        cluster.add(event)
    request = cluster.states[place.replica].requests[place.its_request]
    own, key = request.tokens[: answer.most], request.extra_key
    cached = {
        replica: state.cached_prefix(own, extra_key=key)[1] // state.block_size * state.block_size
        for replica, state in cluster.states.items()
        if replica != place.replica
    }
    best = max(cached, key=lambda one: cached[one], default="")
    return best, cached.get(best, 0)
