"""The logs of a cluster's replicas in which a request arrives when the router had it.

So the measures of an engine's log (`measures.py`) become those of the cluster's clients: the time to
the first token includes the way from the router.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from msgspec.structs import replace

from engine.cluster.cluster_log import ClusterLog
from engine.cluster.recorded_workload import requests_of
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.log_part import unended_requests
from engine.simulation.measures import Samples, merged, samples


class RoutedPart(NamedTuple):
    """The log of a part.

    offset   microseconds from its time to cluster time
    numbers  its requests -> their numbers in the cluster, if all of a request is here: one that went on
             at another replica, and one of a connection that is bound to a replica, is not
    """

    log: EventLog
    offset: int
    numbers: dict[int, int]

    @property
    def unended(self) -> set[int]:
        """The numbers in the cluster of requests that had not ended when the log did."""
        return {self.numbers[one] for one in unended_requests(self.log) if one in self.numbers}


def routed_parts(log: ClusterLog) -> list[RoutedPart]:
    """Return the parts of a log, in the order of `ClusterLog.parts`."""
    parts = log.parts
    found = {id(part.log): RoutedPart(part.log, part.run.offset, {}) for part in parts}
    routed_at = dict[tuple[int, int], int]()
    for routed, places in requests_of(log, parts):
        place = places[0] if len(places) == 1 else None
        is_counted = routed.reason != "pinned" and routed.request > 0
        if place and routed.replica == place.part.run.replica and is_counted:
            part = id(place.part.log)
            found[part].numbers[place.arrived.request] = routed.request
            routed_at[part, place.arrived.request] = place.at - place.way_us(routed)

    def moved(part: int, event: v.Event, offset: int) -> v.Event:
        if not isinstance(event, v.RequestArrived) or (part, event.request) not in routed_at:
            return event
        return replace(event, t=event.t | {"at": routed_at[part, event.request] - offset})

    return [
        one._replace(log=EventLog.from_events([moved(key, event, one.offset) for event in one.log]))
        for key, one in found.items()
    ]


def cluster_samples(
    parts: list[RoutedPart],
    without: Collection[int] = (),
    at: Callable[[int, float], float] = lambda _, us: us,
) -> Samples:
    """Return the samples of all parts.

    without  numbers in the cluster of requests whose times do not count
    at       (number of a part, instant in its log) -> when it is to be instead
    """

    def times(number: int, part: RoutedPart) -> Samples:
        arrived = {one.request for one in part.log.each(v.RequestArrived)}
        for first in part.log.each(v.Keyframe):  # a part of a log, which has these from before
            arrived |= {one.id for one in first.state.requests}
        kept = {its for its, request in part.numbers.items() if request not in without}
        return samples(part.log, lambda us: at(number, us) + part.offset, without=arrived - kept)

    return merged(times(number, part) for number, part in enumerate(parts))
