"""The part of a long log that is replayed: the steps that are asked for, or else the last ones."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from statistics import fmean
from typing import Any

from engine.cluster.cluster_log import ClusterLog, ClusterState
from engine.cluster.cluster_part import ClusterPart
from engine.cluster.events import AnyClusterEvent
from engine.core.log import EventLog, LogError
from engine.core.log import vocabulary as v
from engine.simulation.log_part import LogPart, keyframe_before, unended_requests
from visualizer.indexed.index_file import EVENTS
from visualizer.indexed.indexed_log import Indexed, IndexedLog
from visualizer.indexed.known import known_of
from visualizer.indexed.temporary import indexed_temporarily

MOST = 30_000  # events of a log that are replayed at once; a replay takes some seconds then
MOST_OF_CLUSTER = 30_000
BEFORE = 15_000  # of a cluster's events, which its router remembers


def replayed_part(log: EventLog, first: int | None = None, last: int | None = None) -> EventLog:
    """Return a log's steps from `first` to `last`; None: as many as are replayed at once.

    A log that is not longer than that is returned as it is, if neither is given. Raises LogError if the
    log has no such steps, or if it lacks the beginning of its run.
    """
    if first is last is None and len(log) <= MOST:
        return log
    end = len(log) if last is None else begin_of(log, last + 1)
    begin = next_step(log, max(0, end - MOST)) if first is None else begin_of(log, first)
    if not begin < end:
        raise LogError(
            f"the log has no steps from {first or 1} to {'its end' if last is None else last}"
        )
    part = LogPart.cut(log, begin, end)
    part.later = _later(log, part)
    return part


def _later(log: EventLog, part: EventLog) -> dict[int, int]:
    """Return how many tokens the requests that had not ended at the end of a part got after it.

    If one had not ended at the end of the log, either, its answer is taken to be as long as the others.
    """
    live, later = unended_requests(part), dict[int, int]()
    last = max((one.step for one in part.each(v.StepFinished)), default=0)
    lengths, unended = list[int](), list[tuple[int, int, int]]()  # request, tokens, limit
    for one in known_of(log).each_request("token_steps"):
        steps = list(accumulate(one.token_steps))
        if one.id in live:
            later[one.id] = sum(step > last for step in steps)
        if one.finished is None:
            unended.append((one.id, len(steps), one.max_tokens))
        elif one.finished[1] in ("stop", "length"):
            lengths.append(len(steps))
    usual = round(fmean(lengths)) if lengths else 0
    for request, tokens, limit in unended:
        later[request] = later.get(request, 0) + max(0, min(usual, limit) - tokens)
    return later


def end_of(log: Indexed, share: float) -> tuple[Indexed, int]:
    """Return the last part of a log as a log of its own, and how many events come before it.

    share  of the events, about. Raises OSError if the part cannot be written.
    """
    begin = len(log) - round(share * len(log))
    if begin <= 0:
        return log, 0
    events: Iterable[Any]
    if isinstance(log, IndexedLog):
        begin = next_step(log, begin)
        events = _after_keyframe(log, begin)
    else:
        events = _cluster_from(log, begin)
    return indexed_temporarily(events, log.index.directory.damage), begin


def _after_keyframe(log: IndexedLog, begin: int) -> Iterator[v.Event]:
    yield keyframe_before(log, begin)
    for at in range(begin, len(log), EVENTS):
        yield from log[at : at + EVENTS]


def _cluster_from(events: Iterable[AnyClusterEvent], begin: int) -> Iterator[AnyClusterEvent]:
    """Yield the events of a cluster's log from index `begin` on, after the state before them."""
    state = ClusterState()
    for at, event in enumerate(events):
        if at < begin:
            state.add(event)
            continue
        if at == begin:
            yield from state.head()
        yield event


def replayed_cluster(log: ClusterLog) -> ClusterLog:
    """Return as many of the last events of a cluster's log as are replayed at once.

    They begin with the caches and the requests of that moment. A log that is not longer is returned.
    """
    if len(log) <= MOST_OF_CLUSTER:
        return log
    return ClusterPart.cut(log, MOST_OF_CLUSTER, min(BEFORE, len(log) - MOST_OF_CLUSTER))


def begin_of(log: EventLog, step: int) -> int:
    """Return the index of the event with which a step starts, or the length of the log."""
    begin = 0
    if isinstance(log, IndexedLog) and (chunk := log.index.chunk_of(step)):
        begin = log.index.ends[chunk - 1]
    return next_step(log, begin, step) if step > 1 else 0


def next_step(log: EventLog, begin: int, step: int = 0) -> int:
    """Return the index of the first event from `begin` on that starts a step, `step` or a later one."""
    for at in range(begin, len(log)):
        event = log[at]
        if isinstance(event, v.StepStarted) and event.step >= step:
            return at
    return len(log)
