"""One row per decision of a router: where a request went, why, and whether the prediction held."""

from collections.abc import Iterable

import msgspec

from engine.cluster import events as c
from engine.cluster.cluster_log import RunCounter
from engine.core.log import vocabulary as v
from visualizer.reading.rows.times import in_ms


class DecisionRow(msgspec.Struct, kw_only=True, gc=False):
    """One decision. A request has two rows if its first replica died before its first token, and if it
    is prefilled on one replica and decoded on another; only the second of these has a first token. An
    LMTP connection is one request: its row is about the connection, and has no outcome.

    Identity: request (its number in the cluster), label, attempt (1 or more), replica, its_run (which
    of the replica's runs, from 1) and its_request (its number in the log of that run).
    Decision: reason; load (requests in flight on the chosen replica); prompt_tokens;
    predicted_tokens of them were predicted to be cached there, and cached_tokens were, when the
    replica admitted the request.
    Times: routed_ms (since the gateway started), ttft_ms (from the first decision to the first
    token, in cluster time), decision_us (how long the decision took; None in a simulation).
    lost: the replica died, and the request ended with it.
    """

    request: int
    label: str
    attempt: int
    replica: str
    its_run: int | None = None
    its_request: int | None = None
    reason: c.RoutingReason
    load: int
    prompt_tokens: int
    predicted_tokens: int
    cached_tokens: int | None = None
    routed_ms: float | None = None
    ttft_ms: float | None = None
    decision_us: float | None = None
    lost: bool = False


def decision_rows(events: Iterable[c.ClusterEvent]) -> list[DecisionRow]:
    """Return one row per decision, in order."""
    table = _Table()
    later = list[tuple[c.Of, int, int]]()
    counter = RunCounter()
    for event in events:
        counter.take(event)
        if isinstance(event, c.Of):
            # It may have arrived before the `placed` that names its request.
            run, offset = counter.number(event.replica), table.offsets.get(event.replica, 0)
            later.append((event, run, offset))
        else:
            table.add(event, counter)
    for one in later:
        table.add_outcome(*one)
    return table.rows


class _Table:
    """Rows, filled in while the log is read. Times are in microseconds."""

    def __init__(self) -> None:
        self.rows: list[DecisionRow] = []
        self._latest: dict[int, DecisionRow] = {}  # by request
        self._routed: dict[int, int | None] = {}  # request -> when it was first routed
        # (replica, number of its run, its request) -> row
        self._placed: dict[tuple[str, int, int], DecisionRow] = {}
        self.offsets: dict[str, int] = {}  # of each replica, now
        self._block_sizes: dict[str, int] = {}
        self._prefills: set[str] = set()  # replicas whose tokens reach no client

    def add(self, event: c.ClusterEvent, runs: RunCounter) -> None:
        """Add what the gateway did."""
        match event:
            case c.ReplicaJoined():
                self.offsets[event.replica] = event.t.get("offset", 0)
                if event.role == "prefill":
                    self._prefills.add(event.replica)
            case c.Routed():
                at = event.t.get("at")
                self._routed.setdefault(event.request, at)
                self._latest[event.request] = row = DecisionRow(
                    request=event.request,
                    label=event.label,
                    attempt=event.attempt,
                    replica=event.replica,
                    reason=event.reason,
                    load=event.loads.get(event.replica, 0),
                    prompt_tokens=event.prompt,
                    predicted_tokens=event.hits.get(event.replica, 0),
                    routed_ms=in_ms(at),
                    decision_us=event.t.get("us"),
                )
                self.rows.append(row)
            case c.Placed():
                placed = self._latest.get(event.request)
                if placed is None or placed.reason == "pinned":
                    return
                if placed.replica == event.replica:
                    placed.its_run = run = runs.number(event.replica)
                    placed.its_request = event.its_request
                    self._placed.setdefault((event.replica, run, event.its_request), placed)
            case c.RequestLost() if event.request in self._latest:
                self._latest[event.request].lost = True

    def add_outcome(self, of: c.Of, run: int, offset: int) -> None:
        """Add what happened on the replica, in a run, with this offset of its clock."""
        event, replica = of.event, of.replica
        match event:
            case v.RunStarted():
                self._block_sizes[replica] = event.settings["block_size"]
            case v.Keyframe():
                self._block_sizes[replica] = event.state.settings["block_size"]
            case v.Admitted():
                row = self._placed.get((replica, run, event.request))
                if row is not None and row.cached_tokens is None and not event.resumed:
                    row.cached_tokens = len(event.blocks) * self._block_sizes[replica]
            case v.StepFinished() if replica not in self._prefills:
                for gain in event.tokens:
                    row = self._placed.get((replica, run, gain.request))
                    if row is not None and row.ttft_ms is None and "end" in event.t:
                        self._add_first_token(row, event.t["end"] + offset)

    def _add_first_token(self, row: DecisionRow, at: int) -> None:
        routed = self._routed[row.request]
        if routed is not None:
            row.ttft_ms = in_ms(at - routed)
