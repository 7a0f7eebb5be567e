"""One row per token that reached a client of a cluster, in cluster time."""

from collections.abc import Iterable, Iterator

import msgspec

from engine.cluster import events as c
from engine.cluster.cluster_log import RunCounter
from engine.core.log import vocabulary as v
from visualizer.reading.rows.times import in_ms

_Sequence = tuple[str, int, int]  # a replica, the number of its run, and a request there


class DeliveredRow(msgspec.Struct, gc=False):
    """One token on its way to its client. A token that a prefill replica samples is not delivered, nor
    is one that was lost with its replica before another replica went on.

    request  the number of its request in the cluster; samples of one prompt share it
    label    the request's label
    replica  where the token was computed
    text     its piece
    time_ms  when its step ended, since the gateway started; None without times
    gap_ms   since the sequence's previous token, wherever that was computed; None for the first
    """

    request: int
    label: str
    replica: str
    text: str
    time_ms: float | None
    gap_ms: float | None


def delivered_rows(events: Iterable[c.ClusterEvent]) -> list[DeliveredRow]:
    """Return one row per token, in the order in which the gateway learned of them."""
    later, labels, offsets = list[tuple[c.Of, int, int]](), dict[int, str](), dict[str, int]()
    placed: dict[_Sequence, int] = {}
    latest = dict[int, tuple[_Sequence, c.Routed]]()  # where a request is, and why
    routed = dict[int, c.Routed]()  # its last decision
    goes_on = dict[_Sequence, tuple[_Sequence, int]]()  # after so many tokens of another sequence
    counter = RunCounter()
    for event in events:
        counter.take(event)
        match event:
            case c.Of(replica=replica):
                # It may precede the `placed` that names its request.
                later.append((event, counter.number(replica), offsets.get(replica, 0)))
            case c.ReplicaJoined():
                offsets[event.replica] = event.t.get("offset", 0)
            case c.Routed():
                labels[event.request] = event.label
                routed[event.request] = event
            case c.Placed() if event.request in routed:  # else it was routed before the log begins
                run = counter.number(event.replica)
                sequence = (event.replica, run, event.its_request)
                placed.setdefault(sequence, event.request)
                decision = routed[event.request]
                before, made = latest.get(event.request, (sequence, decision))
                if made is not decision:
                    goes_on[sequence] = before, decision.output
                latest[event.request] = sequence, decision
    return list(_rows(later, labels, placed, goes_on))


def _rows(
    events: Iterable[tuple[c.Of, int, int]],
    labels: dict[int, str],
    placed: dict[_Sequence, int],
    goes_on: dict[_Sequence, tuple[_Sequence, int]],
) -> Iterator[DeliveredRow]:
    """Yield the rows. Each event comes with the number of its run, and the offset of its clock."""
    before: dict[_Sequence, int | None] = {}  # when it had its last token
    counts: dict[_Sequence, int] = {}  # tokens of the answer, those of earlier sequences included
    limits = dict(goes_on.values())
    for of, run, offset in events:
        event = of.event
        if isinstance(event, v.Forked):
            request = placed.get((of.replica, run, event.parent))
            if request is not None:
                placed[of.replica, run, event.request] = request
        if not isinstance(event, v.StepFinished):
            continue
        at = event.t["end"] + offset if "end" in event.t else None
        for gain in event.tokens:
            sequence = (of.replica, run, gain.request)
            if (request := placed.get(sequence)) is None:
                continue  # sent to the replica directly
            earlier, output = goes_on.get(sequence, (sequence, 0))
            for text in gain.texts:
                counts[sequence] = number = counts.get(sequence, output) + 1
                if number > limits.get(sequence, number):
                    continue  # it was lost on the way
                last = before.get(sequence, before.get(earlier))
                gap = None if at is None or last is None else in_ms(at - last)
                before[sequence] = at
                yield DeliveredRow(request, labels[request], of.replica, text, in_ms(at), gap)
