"""One row per decision of a router: where a request went, why, and whether the prediction held."""

import msgspec

from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog, ReplicaRun, RunCounter
from engine.core.log import vocabulary as v
from visualizer.reading.rows.times import in_ms


class DecisionRow(msgspec.Struct, kw_only=True, gc=False):
    """One decision. A request has a further row for each replica that failed and was replaced, and if
    it is prefilled on one replica and decoded on another; only the second of these has a first token.
    An LMTP connection is one request: its row is about the connection, and has no outcome.

    Identity: request (its number in the cluster), label, attempt (1 or more), replica, its_run (which
    of the replica's runs, from 1) and its_request (its number in the log of that run).
    Decision: reason; load (requests in flight on the chosen replica); prompt_tokens;
    predicted_tokens of them were predicted to be cached there, and cached_tokens were, when the
    replica admitted the request. output_tokens is the number of tokens that its client had already:
    the replica computed them again, and went on.
    Times: routed_ms (since the gateway started), ttft_ms (from the first decision to the first
    token, in cluster time), decision_us (how long the decision took; None in a simulation).
    lost: the client got an error, because the replica failed and no other one could go on.
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
    output_tokens: int = 0
    routed_ms: float | None = None
    ttft_ms: float | None = None
    decision_us: float | None = None
    lost: bool = False


def decision_rows(log: ClusterLog) -> list[DecisionRow]:
    """Return one row per decision, in order."""
    table, counter = _Table(), RunCounter()
    for event in log.gateway():
        counter.take(event)
        table.add(event, counter)
    # A replica's events may have arrived before the `placed` that names their request.
    for part in log.parts:
        for outcome in part.log.each(v.RunStarted, v.Keyframe, v.Admitted, v.StepFinished):
            table.add_outcome(outcome, part.run)
    return table.rows


class _Table:
    """Rows, filled in while the log is read. Times are in microseconds."""

    def __init__(self) -> None:
        self.rows: list[DecisionRow] = []
        self._latest: dict[int, DecisionRow] = {}  # by request
        self._routed: dict[int, int | None] = {}  # request -> when it was first routed
        # (replica, number of its run, its request) -> row
        self._placed: dict[tuple[str, int, int], DecisionRow] = {}
        self._block_sizes: dict[str, int] = {}
        self._vain: set[int] = set()  # the ids of rows whose tokens reach no client
        self._begun: set[int] = set()  # the ids of rows with a token

    def add(self, event: c.ClusterEvent, runs: RunCounter) -> None:
        """Add what the gateway did."""
        match event:
            case c.Routed():
                at = event.t.get("at")
                before = self._latest.get(event.request)
                if before is not None and not event.output:
                    self._vain.add(id(before))
                self._routed.setdefault(event.request, at)
                self._latest[event.request] = decided = DecisionRow(
                    request=event.request,
                    label=event.label,
                    attempt=event.attempt,
                    replica=event.replica,
                    reason=event.reason,
                    load=event.loads.get(event.replica, 0),
                    prompt_tokens=event.prompt,
                    predicted_tokens=event.hits.get(event.replica, 0),
                    output_tokens=event.output,
                    routed_ms=in_ms(at),
                    decision_us=event.t.get("us"),
                )
                self.rows.append(decided)
            case c.Placed():
                row = self._latest.get(event.request)
                if row is None or row.reason == "pinned" or row.its_request is not None:
                    return
                if row.replica == event.replica:
                    row.its_run = run = runs.number(event.replica)
                    row.its_request = event.its_request
                    self._placed[event.replica, run, event.its_request] = row
            case c.RequestLost() if event.request in self._latest:
                self._latest[event.request].lost = True

    def add_outcome(self, event: v.Event, of: ReplicaRun) -> None:
        """Add what happened in a run of a replica."""
        replica, run = of.replica, of.number
        match event:
            case v.RunStarted():
                self._block_sizes[replica] = event.settings["block_size"]
            case v.Keyframe():
                self._block_sizes[replica] = event.state.settings["block_size"]
                for request in event.state.requests:
                    row = self._placed.get((replica, run, request.id))
                    output = len(request.tokens) - request.prompt_length
                    if row is not None and output > row.output_tokens:
                        self._begun.add(id(row))  # perhaps in a gap
            case v.Admitted():
                row = self._placed.get((replica, run, event.request))
                if row is not None and row.cached_tokens is None and not event.resumed:
                    row.cached_tokens = len(event.blocks) * self._block_sizes[replica]
            case v.StepFinished() if "end" in event.t:
                for gain in event.tokens:
                    row = self._placed.get((replica, run, gain.request))
                    if row is not None and id(row) not in self._vain:
                        self._add_first_token(row, event.t["end"] + of.offset)

    def _add_first_token(self, row: DecisionRow, at: int) -> None:
        """Note a token; a client that had tokens already has had its first one."""
        routed = self._routed[row.request]
        if routed is not None and id(row) not in self._begun and not row.output_tokens:
            row.ttft_ms = in_ms(at - routed)
        self._begun.add(id(row))
