"""One row per request: what it asked for, what it got, and how long it took."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, quantiles
from typing import Any

import msgspec

from engine.core.log import vocabulary as v
from engine.simulation.latencies import Latencies
from visualizer.reading.rows.times import in_ms
from visualizer.reading.rows.unknown import plus


class RequestRow(msgspec.Struct, kw_only=True, gc=False):
    """One request, or one further sample of its prompt; `request` is its id.

    Identity: label, root and sample (the same for all samples of a prompt), priority, policy_key (the
    policy's sort key at the first admission).
    Tokens: prompt_tokens, max_tokens, cached_tokens (found in the prefix cache at the first admission;
    None before it), output_tokens, of which a tool or a grammar forced forced_tokens; drafted_tokens
    were verified as drafts, and accepted_tokens of them became output. A sample's counts begin at its
    fork: its prompt was computed, and found in the cache, once for all samples of a root.
    What happened: preemptions, finish_reason (stop, length, abort, error; None while it lives), matched
    (the stop string that ended it), message (of an error). Steps: arrived_step (the first that could
    admit it), admitted_step, first_token_step, finished_step (the last of its life; arrived_step for a
    request that ended before any step).
    Times: arrived_ms (since the run started), queue_ms (arrival to the step that first admitted it),
    ttft_ms (arrival to first token), itl_ms, itl_p95_ms, itl_max_ms (mean, 95th percentile and
    maximum of the time between consecutive tokens; 0 for tokens of one step), e2e_ms (arrival to last
    token). All but e2e_ms leave out the time in which the engine was paused.
    """

    request: int
    label: str
    root: int
    sample: int
    priority: int
    policy_key: tuple[Any, ...] | None = None
    prompt_tokens: int
    max_tokens: int
    cached_tokens: int | None = None
    output_tokens: int = 0
    forced_tokens: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    preemptions: int | None = 0
    finish_reason: v.FinishReason | None = None
    matched: str | None = None
    message: str | None = None
    arrived_step: int | None = None
    admitted_step: int | None = None
    first_token_step: int | None = None
    finished_step: int | None = None
    arrived_ms: float | None = None
    queue_ms: float | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None
    itl_p95_ms: float | None = None
    itl_max_ms: float | None = None
    e2e_ms: float | None = None


_OPEN = 64  # steps after its end in which a row may still change


def request_rows(events: Iterable[v.Event]) -> Iterator[RequestRow]:
    """Yield one row per request and sample, in order of appearance."""
    table = _Table()
    for event in events:
        table.add(event)
        if isinstance(event, v.StepFinished):
            yield from table.take()
    yield from table.take(is_end=True)


class _Table:
    """Rows by request, filled in while the log is read. Times are in microseconds."""

    def __init__(self) -> None:
        self.rows: dict[int, RequestRow] = {}
        self._latencies = Latencies()
        self._step = 0
        self._block_size = 0
        self._admitted: dict[int, list[int]] = {}  # for the first time, by unfinished step
        self._drafts: dict[int, int] = {}  # by request, in this step
        # In ms, by request; not for requests with output from before the window.
        self._gaps: dict[int, array[float]] = {}

    def add(self, event: v.Event) -> None:
        """Add the next event."""
        self._latencies.note(event)
        match event:
            case v.RunStarted():
                self._block_size = event.settings["block_size"]
            case v.Keyframe():
                self._rejoin(event.state)
            case v.StepStarted():
                self._step = event.step
                self._drafts = {}
            case v.RequestArrived():
                self._arrived(event)
            case v.Forked():
                self._fork(event)
            case v.Admitted():
                self._admit(event)
            case v.Preempted():
                row = self.rows[event.request]
                row.preemptions = plus(row.preemptions, 1)
            case v.StepScheduled():
                self._drafts = {row.request: len(row.drafts) for row in event.rows if row.drafts}
            case v.StepFinished():
                self._finish_step(event)
            case v.RequestFinished():
                row = self.rows[event.request]
                row.finished_step = max(self._step, row.arrived_step or 0)
                row.finish_reason = event.reason
                row.matched, row.message = event.matched, event.message

    def take(self, *, is_end: bool = False) -> Iterator[RequestRow]:
        """Yield and forget the first rows that no longer change; at the end, all."""
        while self.rows:
            request, row = next(iter(self.rows.items()))
            is_over = row.finished_step is not None and row.finished_step < self._step - _OPEN
            if not (is_over or is_end):
                return
            if gaps := self._gaps.pop(request, None):
                row.itl_ms, row.itl_max_ms = fmean(gaps), max(gaps)
                row.itl_p95_ms = _p95(gaps)
            del self.rows[request]
            self._latencies.forget(request)
            yield row

    def _rejoin(self, state: v.KeyframeState) -> None:
        """Begin with a keyframe, which has only part of each request."""
        self._step = state.step
        self._block_size = state.settings["block_size"]
        for one in state.requests:
            output = len(one.tokens) - one.prompt_length
            never_admitted = one.id in state.waiting and not one.preemptions
            counted = 0 if never_admitted else None
            self.rows[one.id] = RequestRow(
                request=one.id,
                label=one.label,
                root=one.root,
                sample=one.sample,
                priority=one.priority,
                prompt_tokens=one.prompt_length,
                max_tokens=one.max_tokens,
                output_tokens=output,
                forced_tokens=counted,
                drafted_tokens=counted,
                accepted_tokens=counted,
                preemptions=one.preemptions,
            )
            if not output:
                self._gaps[one.id] = array("d")

    def _arrived(self, event: v.RequestArrived) -> None:
        if not event.output:
            self._gaps[event.request] = array("d")
        self.rows[event.request] = RequestRow(
            request=event.request,
            label=event.label,
            root=event.request,
            sample=event.sample,
            priority=event.priority,
            prompt_tokens=len(event.prompt),
            max_tokens=event.max_tokens,
            output_tokens=len(event.output),
            forced_tokens=0,
            drafted_tokens=0,
            accepted_tokens=0,
            arrived_step=self._step + 1,
            arrived_ms=in_ms(event.t.get("at")),
        )

    def _fork(self, event: v.Forked) -> None:
        self._gaps[event.request] = array("d")
        self.rows[event.request] = msgspec.structs.replace(
            self.rows[event.parent], request=event.request, sample=event.sample, preemptions=0
        )
        for admitted in self._admitted.values():
            if event.parent in admitted:
                admitted.append(event.request)

    def _admit(self, event: v.Admitted) -> None:
        row = self.rows[event.request]
        if not event.resumed:
            row.admitted_step = self._step
            row.policy_key = tuple(event.key)
            row.cached_tokens = len(event.blocks) * self._block_size
            self._admitted.setdefault(self._step, []).append(event.request)

    def _finish_step(self, event: v.StepFinished) -> None:
        for request in self._admitted.pop(event.step, ()):
            row = self.rows[request]
            row.queue_ms = self._latencies.since_arrival(request, event.t.get("start"))
        for request, drafts in self._drafts.items():
            row = self.rows[request]
            if row.finish_reason is None:  # otherwise the forward pass failed
                row.drafted_tokens = plus(row.drafted_tokens, drafts)
        for gain in event.tokens:
            self._add_tokens(self.rows[gain.request], gain, event.step, event.t.get("end"))

    def _add_tokens(self, row: RequestRow, gain: v.TokenRow, step: int, end: int | None) -> None:
        row.e2e_ms = self._latencies.e2e(row.request, end)
        if not row.output_tokens:
            row.first_token_step = step
            row.ttft_ms = self._latencies.since_arrival(row.request, end)
        row.output_tokens += len(gain.ids)
        row.forced_tokens = plus(row.forced_tokens, gain.forced)
        row.accepted_tokens = plus(row.accepted_tokens, gain.accepted)
        if row.request in self._gaps:
            gaps = self._latencies.gaps(gain, end)
            self._gaps[row.request].extend(gap for gap in gaps if gap is not None)


def _p95(values: Sequence[float]) -> float:
    """Return the 95th percentile, interpolated linearly between the two nearest values."""
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]
