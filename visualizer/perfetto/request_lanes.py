"""The requests' process in the trace: spans, phases and arrows between requests.

A phase stays open until the next one begins. A request's phases do not overlap, because steps do not.
They are written when the request ends, after its span, because viewers treat the first of two slices
that begin at the same time as the outer one.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from engine.core.log import vocabulary as v
from visualizer.perfetto.step import DECODE, Step
from visualizer.perfetto.trace import Trace, Track

PID = 2
MAX_OWN_LANES = 64  # with more requests, the lanes of ended ones are used again
Point = tuple[Track, int]  # where an arrow starts or ends


@dataclass(slots=True)
class Phase:
    """An open phase. `end` is None for a wait, which ends when the next phase begins."""

    name: str
    begin: int
    end: int | None
    args: dict[str, Any]
    step: int  # the last step of the phase
    reasons: Counter[str] = field(default_factory=Counter)  # `_blocked_steps` as the wait began


@dataclass(slots=True)
class Span:
    """A request, from its arrival (or the start of the window) to its end."""

    name: str
    track: Track
    begin: int
    args: dict[str, Any]
    phase: Phase | None = None
    phases: list[tuple[str, int, int, dict[str, Any]]] = field(default_factory=list)
    preempted_at: Point | None = None
    forked_at: Point | None = None


class RequestLanes:
    """Writes phases and spans to the trace as requests end.

    `visualizer/frontend/src/drawing/lane_packing.ts` assigns the timeline's lanes. Here, they are
    assigned while the log is read, by the times at which requests begin and end.
    """

    def __init__(self, trace: Trace, requests: int, block_size: int) -> None:
        self._trace = trace
        self._reuse = requests > MAX_OWN_LANES
        self._lanes = 0
        self._free: list[tuple[int, int]] = []  # a lane and the time when it became free
        self._block_size = block_size
        self._spans: dict[int, Span] = {}
        self._names: dict[int, str] = {}
        # Reason -> number of steps in which it blocked the queue.
        self._blocked_steps: Counter[str] = Counter()
        # Block -> the request that computed it, and the track and time.
        self._producer: dict[int, tuple[int, Point]] = {}
        trace.process(PID, "requests")

    def name(self, request: int) -> str:
        """Return the name of a request."""
        return self._names.get(request, f"r{request}")

    def arrive(self, request: int, label: str, begin: int, args: dict[str, Any]) -> Span:
        """Start the span of a request that arrived or that was in the window's keyframe."""
        name = self._names[request] = f"r{request} {label}" if label else f"r{request}"
        if ready := [free for free in self._free if free[1] <= begin]:
            topmost = min(ready)
            self._free.remove(topmost)
            lane = topmost[0]
        else:
            lane = self._lanes = self._lanes + 1
            self._trace.thread((PID, lane), f"lane {lane}" if self._reuse else name)
        span = self._spans[request] = Span(name, (PID, lane), begin, args)
        return span

    def wait(self, request: int, name: str, begin: int, args: dict[str, Any]) -> None:
        """Start a waiting phase."""
        reasons = Counter(self._blocked_steps)
        self._spans[request].phase = Phase(name, begin, None, args, 0, reasons)

    def fork(self, request: int, parent: int, step: Step) -> None:
        """Start the span of a sample at the end of the step that forked it."""
        source = self._spans[parent]
        label = source.name.partition(" ")[2]
        span = self.arrive(request, label, step.end, {"sample_of": source.name})
        span.forked_at = source.track, step.middle

    def step(self, step: Step) -> None:
        """Record what happened to each request in a step."""
        hits: dict[int, list[Point]] = {}
        found: dict[int, int] = {}  # blocks in the cache
        for event in step.transitions:
            if event.request not in self._spans:
                continue  # aborted in the meantime
            if isinstance(event, v.Admitted):
                self._close(self._spans[event.request], step.start)
                hits[event.request] = self._sources(event)
                found[event.request] = len(event.blocks)
            else:
                self._preempt(event, step)
        self._count_blocked(step)
        accepted = {row.request: row.accepted for row in step.outputs}
        for row, kind in zip(step.plan.rows, step.kinds, strict=True):
            if row.request in step.wasted:
                continue  # the request's span has ended
            span = self._spans[row.request]
            drafts = len(row.drafts), accepted.get(row.request, 0)
            if kind == DECODE:
                self._extend(span, DECODE, step, drafts)
            else:
                args = {"tokens": row.count - drafts[0], "from_token": row.start}
                if found.get(row.request):
                    args["cached_tokens"] = found[row.request] * self._block_size
                _add_drafts(args, drafts)
                self._close(span, step.start)
                args["step"] = step.number
                span.phases.append((f"{kind} {args['tokens']}", step.start, step.end, args))
            self._arrows(span, step, hits.get(row.request, []))
        for request, reason in step.plan.skipped:
            if request not in step.deferred and request in self._spans:
                self._extend(self._spans[request], f"stalled: {reason}", step)

    def cached(self, request: int, blocks: list[int], step: Step) -> None:
        """Record that blocks computed by this request are now in the prefix cache."""
        span = self._spans[request]
        if span.begin <= step.start:  # a sample has no phase in the step that forked it
            for block in blocks:
                self._producer[block] = request, (span.track, step.middle)

    def forget_producers(self, blocks: list[int]) -> None:
        """Drop the origins of blocks that were evicted from the prefix cache."""
        for block in blocks:
            self._producer.pop(block, None)

    def end(self, request: int, at: int, args: dict[str, Any]) -> None:
        """End a request's span and write it."""
        span = self._spans.pop(request)
        at = max(at, span.begin)
        self._close(span, at)
        self._trace.slice(span.track, span.name, span.begin, at, span.args | args)
        for phase in span.phases:
            self._trace.slice(span.track, *phase)
        if self._reuse:
            self._free.append((span.track[1], at))

    def close(self, at: int) -> None:
        """End the spans of requests that are still unfinished at the end of the log."""
        for request in list(self._spans):
            self.end(request, at, {"finished": "no; the log ends first"})

    def _preempt(self, event: v.Preempted, step: Step) -> None:
        span = self._spans[event.request]
        self._close(span, step.start)
        lost = step.lost[event.request]
        args: dict[str, Any] = {"computed_tokens_lost": lost}
        if event.needed_by >= 0:  # another engine's log may not name the request
            args = {"needed_by": self.name(event.needed_by)} | args
        self.wait(event.request, "preempted", step.start, args)
        span.preempted_at = span.track, step.middle

    def _sources(self, event: v.Admitted) -> list[Point]:
        """Return where other requests computed the blocks that this request found in the cache."""
        known = [self._producer[block] for block in event.blocks if block in self._producer]
        return [moment for request, moment in dict(known).items() if request != event.request]

    def _count_blocked(self, step: Step) -> None:
        """Count why the queue is blocked. A deferred request waits because of the policy instead."""
        blocked = step.plan.blocked
        if blocked is not None:
            self._blocked_steps[blocked.reason] += 1
        for request in step.deferred:
            phase = self._spans[request].phase if request in self._spans else None
            if phase is not None:
                phase.reasons[dict(step.plan.skipped)[request]] -= 1
                if blocked is not None:
                    phase.reasons[blocked.reason] += 1

    def _extend(self, span: Span, name: str, step: Step, drafts: tuple[int, int] = (0, 0)) -> None:
        """Extend the phase of the previous step, or start a new one."""
        phase = span.phase
        if phase is None or phase.name != name or phase.step != step.number - 1:
            self._close(span, step.start)
            args = {"steps": 0, "from_step": step.number}
            phase = span.phase = Phase(name, step.start, step.end, args, step.number)
        phase.step, phase.end = step.number, step.end
        phase.args["steps"] += 1
        phase.args["to_step"] = step.number
        _add_drafts(phase.args, drafts)

    def _arrows(self, span: Span, step: Step, hits: list[Point]) -> None:
        here = span.track, step.middle
        for source in hits:
            self._trace.flow("prefix hit", source, here)
        for name, earlier in (("resumed", span.preempted_at), ("forked", span.forked_at)):
            if earlier is not None:
                self._trace.flow(name, earlier, here)
        span.preempted_at = span.forked_at = None

    def _close(self, span: Span, at: int) -> None:
        """Close the open phase, if any. A wait ends at `at`."""
        phase = span.phase
        if phase is None:
            return
        span.phase = None
        if phase.end is None:
            reasons = self._blocked_steps - phase.reasons
            if reasons:
                phase.args["steps_by_reason"] = dict(reasons.most_common())
                if phase.name == "waiting":
                    phase.name = f"waiting: {reasons.most_common(1)[0][0]}"
        end = at if phase.end is None else phase.end
        if end > phase.begin or phase.args:  # a request admitted immediately did not wait
            span.phases.append((phase.name, phase.begin, end, phase.args))


def _add_drafts(args: dict[str, Any], drafts: tuple[int, int]) -> None:
    """Add the numbers of drafted and accepted tokens."""
    for name, count in zip(("drafts", "accepted_drafts"), drafts, strict=True):
        if drafts[0]:
            args[name] = args.get(name, 0) + count
