"""One row per token that reached a client of a cluster, in cluster time."""

from collections.abc import Iterable, Iterator

import msgspec

from engine.cluster import events as c
from engine.core.log import vocabulary as v
from visualizer.reading.rows.times import in_ms


class DeliveredRow(msgspec.Struct, gc=False):
    """One token on its way to its client. A token that a prefill replica samples is not delivered.

    request  the number of its request in the cluster; samples of one prompt share it
    label    the request's label
    replica  where the token was computed
    text     its piece
    time_ms  when its step ended, since the gateway started; None without times
    gap_ms   since the sequence's previous token; None for the first
    """

    request: int
    label: str
    replica: str
    text: str
    time_ms: float | None
    gap_ms: float | None


def delivered_rows(events: Iterable[c.ClusterEvent]) -> list[DeliveredRow]:
    """Return one row per token, in the order in which the gateway learned of them."""
    later, labels, offsets = list[c.Of](), dict[int, str](), dict[str, int]()
    placed: dict[tuple[str, int], int] = {}  # (replica, its request) -> request
    prefills: set[str] = set()
    for event in events:
        match event:
            case c.Of():
                later.append(event)  # it may precede the `placed` that names its request
            case c.ReplicaJoined():
                offsets[event.replica] = event.t.get("offset", 0)
                if event.role == "prefill":
                    prefills.add(event.replica)
            case c.Routed():
                labels[event.request] = event.label
            case c.Placed():
                placed.setdefault((event.replica, event.its_request), event.request)
    return list(_rows([of for of in later if of.replica not in prefills], labels, offsets, placed))


def _rows(
    events: Iterable[c.Of],
    labels: dict[int, str],
    offsets: dict[str, int],
    placed: dict[tuple[str, int], int],
) -> Iterator[DeliveredRow]:
    before: dict[tuple[str, int], int | None] = {}  # a sequence -> when it had its last token
    for of in events:
        event = of.event
        if isinstance(event, v.Forked):
            request = placed.get((of.replica, event.parent))
            if request is not None:
                placed[of.replica, event.request] = request
        if not isinstance(event, v.StepFinished):
            continue
        at = event.t["end"] + offsets.get(of.replica, 0) if "end" in event.t else None
        for gain in event.tokens:
            sequence = (of.replica, gain.request)
            if (request := placed.get(sequence)) is None:
                continue  # sent to the replica directly
            for text in gain.texts:
                last = before.get(sequence)
                gap = None if at is None or last is None else in_ms(at - last)
                before[sequence] = at
                yield DeliveredRow(request, labels[request], of.replica, text, in_ms(at), gap)
