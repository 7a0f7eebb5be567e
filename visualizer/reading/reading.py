"""Everything that a log can be asked: rows, tables, and answers about one request or one step.

    from visualizer import read

    read(engine.log).request_rows         one row per request; also step_rows and token_rows
    read(engine.log).requests             the same as a pandas frame; also steps and tokens
    read(engine.log).why("Ada", step=7)   the causal chain in words
    read(engine.log).waterfall            where each request's time went
    read(engine.log).regimes              what limited the run, from when to when
    read(engine.log).tour                 what happened, in five to nine scenes

A log only records: `engine/core/log` appends, saves, loads and folds. Nothing here is stored either,
because each property is computed from the events when it is asked for.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, overload

from engine.cluster.cluster_log import ClusterLog
from engine.core.log.expert_loads import unpacked
from engine.core.log.log import EventLog, LogError
from engine.core.log.vocabulary import StepFinished
from visualizer.indexed.names import unique_names
from visualizer.reading.expert_loads import ExpertLoads
from visualizer.reading.frames import frame
from visualizer.reading.knowledge import LogKnowledge
from visualizer.reading.rows import (
    OutputTokenRow,
    RequestRow,
    StepRow,
    request_rows,
    step_rows,
    token_rows,
)
from visualizer.reading.rows.decisions import DecisionRow, decision_rows
from visualizer.reading.rows.delivered import DeliveredRow, delivered_rows
from visualizer.reading.rows.unknown import (
    REQUEST_FACTS,
    STEP_FACTS,
    TOKEN_FACTS,
    source_of,
    without_unknown,
)
from visualizer.reading.waterfall import RequestTime, Waterfall
from visualizer.reading.why import answer
from visualizer.reading.why.elsewhere import why_missed_in_cluster
from visualizer.reading.why.find import request_named
from visualizer.reading.why.log_index import WhyError
from visualizer.reading.why.miss import WhyMissed
from visualizer.reading.why.missed import why_missed
from visualizer.reading.why.stuck import Stuck, stuck

if TYPE_CHECKING:
    import pandas as pd

    from visualizer.reading.regimes import ClusterRegimes, Regimes
    from visualizer.reading.tour import Tour


@overload
def read(log: EventLog) -> "Reading": ...
@overload
def read(log: ClusterLog) -> "ClusterReading": ...
def read(log: EventLog | ClusterLog) -> "Reading | ClusterReading":
    """Return what can be asked of the log of one engine, or of a cluster."""
    return ClusterReading(log) if isinstance(log, ClusterLog) else Reading(log)


class Reading:
    """The questions to the log of one engine. A `request` is an id or a label."""

    def __init__(self, log: EventLog) -> None:
        self.log = log

    @property
    def knowledge(self) -> LogKnowledge:
        """Which facts the log recorded, which are inferred, and which are unknown."""
        return LogKnowledge(source_of(self.log))

    # One record per request, step and token; see `rows`. A value that the source of a foreign log does
    # not know is None.

    @property
    def request_rows(self) -> list[RequestRow]:
        """One row per request and sample, in order of appearance."""
        return list(self.each_request)

    @property
    def step_rows(self) -> list[StepRow]:
        """One row per step, in order."""
        return list(self.each_step)

    @property
    def token_rows(self) -> list[OutputTokenRow]:
        """One row per output token, in order of appearance."""
        return list(self.each_token)

    # The same, one after the other: a long log has too many for memory.

    @property
    def each_request(self) -> Iterator[RequestRow]:
        """Yield `request_rows`."""
        return without_unknown(request_rows(self.log), REQUEST_FACTS, source_of(self.log))

    @property
    def each_step(self) -> Iterator[StepRow]:
        """Yield `step_rows`."""
        return without_unknown(step_rows(self.log), STEP_FACTS, source_of(self.log))

    @property
    def each_token(self) -> Iterator[OutputTokenRow]:
        """Yield `token_rows`."""
        return without_unknown(token_rows(self.log), TOKEN_FACTS, source_of(self.log))

    def request(self, key: int | str) -> RequestRow:
        """Return the row of a request, given its id or name; of its samples, the first.

        Raises LogError if no request has this id or label, or if several requests have the label.
        """
        rows = self.request_rows
        roots = list(dict.fromkeys(row.root for row in rows if row.label == key))
        if len(roots) > 1:
            ids = ", ".join(map(str, roots))
            raise LogError(f"request: several are labelled {key!r}; use one of their ids: {ids}")
        try:
            found = request_named(unique_names({row.request: row.label for row in rows}), key)
        except WhyError as error:
            raise LogError(str(error)) from error
        return next(row for row in rows if row.request == found)

    def step(self, number: int) -> StepRow:
        """Return the row of a step. Raises LogError if the log does not have it."""
        rows = {row.step: row for row in self.step_rows}
        if number not in rows:
            known = f"{min(rows)} to {max(rows)}" if rows else "none"
            raise LogError(f"step: {number!r} is not in this log; its steps are {known}")
        return rows[number]

    def expert_loads(self, step: int | None = None) -> ExpertLoads:
        """Return how many tokens each expert of each layer computed in a step; None: in the whole run.

        Raises LogError if the log has none: the model is dense, the step failed or is not here.
        """
        if step is None:
            loads = self.log.state().expert_loads
        else:
            finished = [event for event in self.log.each(StepFinished) if event.step == step]
            loads = [unpacked(layer) for event in finished for layer in event.expert_loads]
        if not any(loads):
            what = "this log has" if step is None else f"step {step!r} of this log has"
            raise LogError(
                f"expert_loads: {what} none; only steps of a model with a mixture of experts have some"
            )
        return ExpertLoads(loads)

    # The same rows as pandas frames, with the same columns in the same order.

    @property
    def requests(self) -> "pd.DataFrame":
        """`request_rows` as a frame, indexed by id."""
        return frame(RequestRow, self.request_rows, "request")

    @property
    def steps(self) -> "pd.DataFrame":
        """`step_rows` as a frame, indexed by step number."""
        return frame(StepRow, self.step_rows, "step")

    @property
    def tokens(self) -> "pd.DataFrame":
        """`token_rows` as a frame."""
        return frame(OutputTokenRow, self.token_rows)

    # Answers, in words; see `waterfall` and `why`. They raise WhyError for a request or a step that is
    # not in the log.

    @property
    def waterfall(self) -> Waterfall:
        """Where each request's time went."""
        return Waterfall(self.log)

    @property
    def regimes(self) -> "Regimes":
        """What limited the run, from when to when, and what that cost."""
        from visualizer.reading.regimes import regimes_of

        return regimes_of(self.log)

    @property
    def tour(self) -> "Tour":
        """What happened, in five to nine scenes; a calm or very short run has fewer."""
        from visualizer.reading.tour import tour_of

        return tour_of(self.log)

    def why(self, request: int | str, step: int | None = None) -> str:
        """Return what happened to a request in a step, and why; None: in the last step."""
        if isinstance(request, str):
            request = request_named(self.waterfall.names, request)
        return answer.why(self.log, request, step)

    def why_slow(self, request: int | str) -> RequestTime:
        """Return where the time of a request went: its `parts`, in words and as a bar."""
        waterfall = self.waterfall
        return waterfall.alone(request_named(waterfall.names, request))

    def why_missed(self, request: int | str) -> WhyMissed:
        """Return why no more of a request's prompt was cached when it was admitted."""
        return why_missed(self.log, request)

    def stuck(self, step: int | None = None) -> Stuck:
        """Return the queue after a step was scheduled, with ages and reasons; None: the last step."""
        return stuck(self.log, step)


class ClusterReading:
    """The questions to the log of a cluster. `read(log.replicas[ID])` answers those to one replica."""

    def __init__(self, log: ClusterLog) -> None:
        self.log = log

    @property
    def decision_rows(self) -> list[DecisionRow]:
        """One row per decision of the router, in order."""
        return decision_rows(self.log)

    @property
    def decisions(self) -> "pd.DataFrame":
        """`decision_rows` as a frame."""
        return frame(DecisionRow, self.decision_rows)

    @property
    def regimes(self) -> "ClusterRegimes":
        """What limited each replica, and where requests waited longest."""
        from visualizer.reading.regimes import regimes_of_cluster

        return regimes_of_cluster(self.log)

    @property
    def tour(self) -> "Tour":
        """What the router decided, and what happened at the replica where requests wait longest."""
        from visualizer.reading.tour import tour_of_cluster

        return tour_of_cluster(self.log)

    @property
    def token_rows(self) -> list[DeliveredRow]:
        """One row per token that reached a client, in order."""
        return delivered_rows(self.log)

    def why(self, request: int | str, step: int | None = None) -> str:
        """Return the way of a request through the cluster, or what happened to it in a step.

        Each replica has steps of its own, so the answer is about those that had the request then.
        `request` is its number in the cluster, or its label. Raises WhyError for another one.
        """
        from visualizer.reading.why.in_cluster import RequestWay

        way = RequestWay(self.log, request)
        return str(way) if step is None else way.why(step)

    def stuck(self, step: int | None = None) -> dict[str, Stuck]:
        """Return the queue of each replica at the end of its log, or of those that had a step."""
        queues = dict[str, Stuck]()
        for part in self.log.parts:
            with suppress(WhyError):
                queues[part.name] = stuck(part.log, step)
        return queues

    def why_missed(self, request: int | str) -> WhyMissed:
        """Return why no more of a request's prompt was cached on its replica.

        `request` is its number in the cluster, or its label. Raises WhyError for another one.
        """
        return why_missed_in_cluster(self.log, request)
