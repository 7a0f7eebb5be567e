"""What each request asked for and what became of it, while a log is folded."""

from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from visualizer.indexed.facts import Request, Segment, Time
from visualizer.indexed.handlers import Handlers
from visualizer.indexed.latency_facts import LatencyFacts
from visualizer.indexed.pass_facts import PassFacts, Repeat
from visualizer.indexed.step_facts import StepFacts

_MEMORY = {"no_free_blocks", "whole_sequence", "reserved_blocks", "expected_tokens"}
_ROWS = {"prefill", "catchup", "decode"}
_OF_ALL_SAMPLES = (
    "arrived arrived_at n examined begins_at admitted computed hashes"  # what a fork inherits
).split()


class RequestFacts:
    """The requests and samples of a log. It tells `steps` and `passes` what a plan's rows are."""

    def __init__(self, state: State, steps: StepFacts, passes: PassFacts) -> None:
        self._state, self._steps, self._passes = state, steps, passes
        self._latencies = LatencyFacts(steps, passes.paused)
        self._requests: dict[int, Request] = {}  # that may change
        self._ended: list[Request] = []
        self._total = 0
        self.before: Handlers = {
            v.Admitted: self._admitted,
            v.Preempted: self._preempted,
            v.StepScheduled: self._scheduled,
            v.StepFinished: self._step_finished,
            v.RequestFinished: self._finished,
        }
        self.after: Handlers = {
            v.Keyframe: self._rejoin,
            v.RequestArrived: self._arrived,
            v.Forked: self._forked,
            v.Admitted: lambda event: self._take_lane(self._requests[event.request]),
        }

    @property
    def oldest(self) -> int:
        """How many steps had finished when the oldest request arrived that may change."""
        return min((one.begins_at for one in self._requests.values()), default=self._passes.count)

    @property
    def itl(self) -> list[tuple[str, Time]]:
        """See `Run`; of the requests that were taken."""
        return self._latencies.percentiles()

    def take(self, *, is_end: bool) -> list[Request]:
        """Return the requests that can no longer change and were not returned; at the end, all."""
        ended, oldest = self._ended, self._steps.oldest
        if is_end:
            ended = sorted(self._requests.values(), key=lambda one: one.index)
            for request in ended:
                if (live := self._state.requests.get(request.id)) is not None:
                    request.tokens, request.texts = live.tokens, live.texts
        elif oldest is not None:
            # A row in vain is reported a step after its request ended.
            ended = [one for one in ended if one.finished and one.finished[0] < oldest]
        gone = {one.id for one in ended}
        self._ended = [one for one in self._ended if one.id not in gone]
        for request in ended:
            del self._requests[request.id]
            self._latencies.add(request)
            request.token_steps = _differences(request.token_steps)
        return ended

    def _meet(self, live: v.RequestState) -> Request:
        request = Request(
            id=live.id,
            index=self._total,
            label=live.label,
            root=live.root,
            sample=live.sample,
            n=live.num_seqs,
            prompt_length=live.prompt_length,
            max_tokens=live.max_tokens,
            priority=live.priority,
            sampling=live.sampling,
            extra_key=live.extra_key,
            tokens=[],
            texts=[],
            hashes=[],
            lane=None,
            laned_at=None,
            arrived=None,
            arrived_at=None,
            examined=0,
            begins_at=0,
            ends_at=None,
            first_token=None,
            admitted=None,
            shortfall=None,
            computed=0,
            admissions=[],
            preemptions=[],
            forked=None,
            finished=None,
            token_steps=[],
            logprobs=[],
            drafted=[],
            forced=[],
            masks=[],
            segments=[],
            before=[],
            ttft=None,
            slowest=0,
        )
        self._total += 1
        self._requests[live.id] = request
        return request

    def _take_lane(self, request: Request) -> None:
        if request.lane is None:
            request.lane = self._state.lanes.of(request.id)
            if request.lane is not None:
                request.laned_at = self._steps.number

    def _rejoin(self, event: v.Keyframe) -> None:
        state, step = self._state, max(1, self._state.step)
        for _, live in sorted(state.requests.items()):
            request = self._meet(live)
            self._take_lane(request)
            output = len(live.tokens) - live.prompt_length
            request.token_steps = [0] * output
            request.computed = len(live.tokens) - 1 if output > 0 else live.num_computed_tokens
            is_waiting = live.id in state.waiting
            if not is_waiting or live.preemptions:
                request.admitted = 0, 0, 0, ""
            if is_waiting and live.preemptions:
                request.before.append(Segment("preempted", 0, step - 1))
                request.segments.append(Segment("preempted", step, None))
            elif is_waiting:
                request.segments.append(Segment("waiting", step, None))
        for number, rows in [*event.state.in_flight, (state.step, event.state.plan)]:
            # A request may have ended while its row is computed.
            known = [row for row in rows if row.request in state.requests]
            self._passes.join(number, known, *self._add_rows(known, number, is_before=True))

    def _arrived(self, event: v.RequestArrived) -> None:
        state, step = self._state, self._steps.number
        request = self._meet(state.requests[event.request])
        request.hashes, request.token_steps = event.hashes, [0] * len(event.output)
        request.arrived, request.arrived_at = step, event.t.get("at")
        request.segments.append(Segment("waiting", step, None))
        request.examined, request.begins_at = state.step + 1, self._passes.count

    def _forked(self, event: v.Forked) -> None:
        parent = self._requests[event.parent]
        request = self._meet(self._state.requests[event.request])
        for name in _OF_ALL_SAMPLES:
            setattr(request, name, getattr(parent, name))
        request.forked = self._steps.number, parent.id
        request.before = [replace(one) for one in (*parent.before, *parent.segments)]
        self._take_lane(request)

    def _admitted(self, event: v.Admitted) -> None:
        state, request = self._state, self._requests[event.request]
        step, found = self._steps.number, len(event.blocks) * state.block_size
        request.admissions.append((step, found, event.resumed, state.seq + 1))
        if not event.resumed:
            request.admitted = (step, found, *state.adopted_prefix(event.node))
        _end_wait(request, step - 1)
        if event.resumed and request.preemptions:
            request.preemptions[-1] = (*request.preemptions[-1][:2], step)

    def _preempted(self, event: v.Preempted) -> None:
        state, request, step = self._state, self._requests[event.request], self._steps.number
        computed = state.requests[event.request].num_computed_tokens
        request.preemptions.append((step, computed, None))
        ends = [
            row.start + row.count - len(row.drafts)
            for rows in state.plans.values()
            for row in rows
            if row.request == event.request
        ]
        request.computed = max(request.computed, computed, *ends)
        by = None if event.needed_by < 0 else event.needed_by
        request.segments.append(Segment("preempted", step, None, by=by))

    def _scheduled(self, event: v.StepScheduled) -> None:
        state, requests, step = self._state, self._requests, self._steps.number
        if event.blocked is not None:
            self._note_shortfall(event.blocked)
        kinds, again = self._add_rows(event.rows, step)
        self._steps.plan(event, kinds)
        self._passes.plan(event, kinds, again)
        for id_, reason in event.skipped:
            if id_ in state.waiting:
                continue
            segments = requests[id_].segments
            last = segments[-1] if segments else None
            is_same = last is not None and last.kind == "stalled" and last.reason == reason
            if last is not None and is_same and last.end == step - 1:
                last.end = step
            else:
                segments.append(Segment("stalled", step, step, reason=reason))

    def _add_rows(
        self, rows: list[v.ScheduledRow], step: int, *, is_before: bool = False
    ) -> tuple[list[str], list[Repeat]]:
        """Add the rows of a step. Return the kind of each, and what is computed again: see `Plans`."""
        kinds, again = list[str](), list[Repeat]()
        for row in rows:
            request, live = self._requests[row.request], self._state.requests[row.request]
            kind, recomputed = _add_row(request, row, step, live, is_before=is_before)
            kinds.append(kind)
            if recomputed:
                lost_in = request.preemptions[-1][0] if request.preemptions else step
                again.append((row.request, recomputed, lost_in))
        return kinds, again

    def _note_shortfall(self, blocked: v.Blocked) -> None:
        request, state = self._requests.get(blocked.request), self._state
        is_last = blocked.reason == "reserved_blocks" or state.settings.get("preemption")
        if request and request.shortfall is None and is_last and blocked.reason in _MEMORY:
            request.shortfall = state.step, blocked.need - blocked.have

    def _step_finished(self, event: v.StepFinished) -> None:
        step, t, requests = self._steps.number, event.t, self._requests
        logprobs = t.get("logprobs") or ()
        count = self._passes.count if self._passes.counts(event.step) else None
        for number, gain in enumerate(event.tokens):
            request, ids = requests[gain.request], gain.ids
            steps = request.token_steps
            place = len(steps)
            if not place and request.first_token is None:
                request.first_token = count
            if len(ids) == 1:
                steps.append(step)
            else:
                steps += [step] * len(ids)
            own = logprobs[number] if number < len(logprobs) else []
            if gain.accepted or gain.forced or gain.allowed:
                _note_tokens(request, gain, own, number, t)
            elif own:
                request.logprobs += [1] * (place - len(request.logprobs))
                request.logprobs += own[: len(ids)]
            last = request.segments[-1] if gain.accepted and request.segments else None
            if last is not None and last.begin == step and last.drafts:
                last.accepted = gain.accepted
        for id_ in event.wasted:
            self._waste(id_, event.step)

    def _waste(self, id_: int, step: int) -> None:
        """Make a row in vain a segment of its own."""
        request = self._requests.get(id_)
        if request is None:
            return
        state = self._state
        if id_ not in state.requests:
            wasted = "ended"
        else:
            wasted = "preempted" if id_ in state.waiting else "dropped"
        for segments in (request.segments, request.before):
            for at in reversed(range(len(segments))):
                one = segments[at]
                if one.kind in _ROWS and one.begin <= step <= (one.end or 0):
                    parts = [
                        replace(one, end=step - 1),
                        replace(one, begin=step, end=step, wasted=wasted),
                        replace(one, begin=step + 1),
                    ]
                    segments[at : at + 1] = [p for p in parts if p.begin <= (p.end or 0)]
                    return

    def _finished(self, event: v.RequestFinished) -> None:
        state, info, request = self._state, self._steps.last, self._requests[event.request]
        step, live = info.step, state.requests[event.request]
        last = max(step if info.status != "pending" else step - 1, request.arrived or 0)
        request.finished = last, event.reason, event.message, state.seq + 1
        _end_wait(request, step - 1)
        # A failed pass ends its requests before the step is finished.
        request.ends_at = self._passes.count + (event.reason == "error")
        request.tokens, request.texts = live.tokens, live.texts
        self._ended.append(request)


def _add_row(
    request: Request,
    row: v.ScheduledRow,
    step: int,
    live: v.RequestState,
    *,
    is_before: bool = False,
) -> tuple[str, int]:
    """Add a row of a step; plain decodes share a segment. Return its kind and how much it repeats.

    is_before  the step began before the log does
    """
    segments = request.before if is_before else request.segments
    drafts, start = len(row.drafts), row.start
    tokens = row.count - drafts
    end = start + tokens
    recomputed = min(end, request.computed) - start if request.computed > start else 0
    if start >= live.prompt_length and tokens <= 1 and end >= len(live.tokens):
        if segments and not (drafts or recomputed):
            last = segments[-1]
            goes_on = last.kind == "decode" and last.end == step - 1 and not last.wasted
            if goes_on and not last.drafts and not last.recomputed:
                last.end = step
                return "decode", recomputed
        segments.append(Segment("decode", step, step, drafts, 0, recomputed))
        return "decode", recomputed
    kind = "prefill" if start < live.prompt_length else "catchup"
    found = 0
    if request.admissions and request.admissions[-1][0] == step:
        found = request.admissions[-1][1]
    reaches = (
        start + recomputed >= live.prompt_length
        and end >= len(live.tokens)
        and tokens - recomputed == 1
    )
    segments.append(Segment(kind, step, step, drafts, 0, recomputed, start, tokens, found, reaches))
    return kind, recomputed


def _end_wait(request: Request, to: int) -> None:
    """End the open wait or preemption; one that took no step is removed."""
    if not request.segments or request.segments[-1].end is not None:
        return
    last = request.segments[-1]
    if to < last.begin:
        request.segments.pop()
    else:
        last.end = to
    if last.kind == "preempted" and not request.finished:
        last.resume = to + 1


def _note_tokens(
    request: Request,
    gain: v.TokenRow,
    logprobs: list[float],
    number: int,
    t: dict[str, Any],
) -> None:
    """Note what the log has of the latest output tokens; `number` is that of their row."""
    place = len(request.token_steps) - len(gain.ids)
    from_tool = len(gain.ids) - gain.forced
    request.drafted += range(place, place + min(gain.accepted, len(gain.ids)))
    request.forced += range(place + max(0, from_tool), place + len(gain.ids))
    if known := logprobs[: max(0, from_tool)]:
        request.logprobs += [1] * (place - len(request.logprobs))
        request.logprobs += known
    for index, allowed in enumerate(gain.allowed[: len(gain.ids)]):
        if allowed:
            request.masks += [None] * (place + index - len(request.masks))
            best = t["wanted"][number][index] if "wanted" in t else None
            mass = t["mass"][number][index] if "mass" in t else None
            request.masks.append((allowed, best[1] if best else None, mass))


def _differences(values: list[int]) -> list[int]:
    return values[:1] + [after - before for before, after in pairwise(values)]
