"""What happened in each step, and how full it was at its end, while a log is folded."""

import math
from array import array
from operator import attrgetter
from typing import Any

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import LogError
from engine.simulation.facts import knowledge
from visualizer.indexed.block_facts import BlockFacts
from visualizer.indexed.facts import Steps, Time
from visualizer.indexed.handlers import Handlers

# The measures of a step, in the order of `measures.ts`.
COUNTS = (
    "used shared cached free tokens prefill catchup decode rows output running waiting preempted "
    "evicted found happened suspended seats reach guessing drafted accepted "
    "host disk"
).split()
TIMES = "start scheduled end launched ready drafting".split()
_COLUMNS = set(Steps.__struct_fields__) - {"counts", "times"}
_OPEN = 8  # steps that may still change: with asynchronous scheduling, the one before the last
_BITS = {
    v.Preempted: 1,
    v.RadixEvicted: 2,
    v.BlockEvicted: 2,
    v.BlockCopied: 4,
    v.Forked: 8,
    v.EventsMissing: 8192,
}
_REJECTED, _HIT, _LARGE_HIT, _OTHERS, _CACHED_FATE, _TAKEN = 16, 32, 64, 1024, 2048, 4096
_ENDS = {"abort": 256, "error": 512, "stop": 128, "length": 128}
# Events that may begin a step; of ends and evictions, those between two steps.
BEGIN = {
    *(v.RunStarted, v.Keyframe, v.StepStarted, v.RequestArrived, v.RequestFinished),
    *(v.RadixEvicted, v.BlockEvicted),
}
_BETWEEN = {"abort", "cleared"}


class _Step(msgspec.Struct, gc=False):
    """A step and its measures, which have their names in `measures.ts`.

    preemptions  (request, block table, number of the event)
    taken        (block, request, number of the event) of blocks allocated after a preemption
    """

    step: int
    first: int
    last: int
    status: str
    scheduled: int | None = None
    blocked: v.Blocked | None = None
    used: int = 0
    shared: int = 0
    cached: int = 0
    free: int = 0
    tokens: int = 0
    prefill: int = 0
    catchup: int = 0
    decode: int = 0
    rows: int = 0
    output: int = 0
    running: int = 0
    waiting: int = 0
    preempted: int = 0
    evicted: int = 0
    found: int = 0
    happened: int = 0
    suspended: int = 0
    seats: int = 0
    reach: int = 0
    guessing: int = 0
    drafted: int = 0
    accepted: int = 0
    host: int = 0
    disk: int = 0
    times: dict[str, Time | None] = {}
    chunks: list[tuple[int, int]] = []
    computed: list[int] = []
    deferred: list[tuple[int, str]] = []
    missing: list[dict[str, Any]] = []
    preemptions: list[tuple[int, list[int], int]] = []
    taken: list[tuple[int, int, int]] = []


class StepFacts:
    """The steps of a log.

    step       the last one that began
    causes     why requests waited, in order of appearance
    waiting    how many requests wait; `suspended` of them were preempted
    """

    def __init__(self, state: State, blocks: BlockFacts) -> None:
        self.step = 0
        self.causes: list[str] = []
        self.waiting = self.suspended = 0
        self._state, self._blocks = state, blocks
        self._steps: list[_Step] = []
        self._first, self._ends = 0, array("d")  # the first step's number; when those taken ended
        self.before: Handlers = {
            v.Admitted: self._admitted,
            v.BlocksMoved: self._moved,
            v.BlocksAllocated: self._allocated,
            v.BlockCopied: self._copied,
            v.Preempted: self._preempted,
            v.RadixEvicted: self._evicted,
            v.BlockEvicted: self._evicted,
            v.StepReported: self._reported,
            v.StepFinished: self._finished,
            v.RequestFinished: self._request_finished,
            v.Forked: self._note,
            v.EventsMissing: self._missing,
        }
        self.after: Handlers = {
            v.Keyframe: self._rejoin,
            v.RequestArrived: self._arrived,
            v.StepStarted: self._started,
            v.StepScheduled: self._scheduled,
            v.StepFinished: self._after_finished,
        }

    @property
    def last(self) -> _Step:
        """The step that the next event belongs to."""
        return self._steps[-1]

    @property
    def number(self) -> int:
        """The number of that step."""
        return self._steps[-1].step

    @property
    def oldest(self) -> int | None:
        """The first step that may still change; None without a step."""
        return self._steps[0].step if self._steps else None

    def take(self, *, is_end: bool) -> list[Steps]:
        """Return the steps that can no longer change and were not returned; at the end, all."""
        if is_end and self._steps:
            self._record()
            self._steps[-1].last = self._state.seq
        cut = len(self._steps) - (0 if is_end else _OPEN)
        if cut <= 0:
            return []
        steps, self._steps = self._steps[:cut], self._steps[cut:]
        self._first = self._first or steps[0].step
        ends = (one.times.get("end") for one in steps)
        self._ends.extend(math.nan if end is None else end for end in ends)
        columns = {name: list(map(attrgetter(name), steps)) for name in (*_COLUMNS, *COUNTS)}
        counts = [columns.pop(name) for name in COUNTS]
        times = [[one.times.get(name) for one in steps] for name in TIMES]
        return [Steps(**columns, counts=counts, times=times)]

    def end_of(self, step: int) -> float:
        """Return when a step ended that was taken; NaN: the log does not say."""
        at = step - self._first
        return self._ends[at] if at >= 0 else math.nan

    # Where a step begins and ends

    def begin(self, event: Any) -> None:
        """Begin a step unless the next event, of a kind in `BEGIN`, belongs to the last one."""
        if self._begins(type(event), event):
            last = self._steps[-1].step if self._steps else self._state.step
            number = event.step if isinstance(event, v.StepStarted) else last + 1
            if self._steps:
                if number != last + 1:
                    raise LogError(
                        f"event {self._state.seq + 1}: step {number} follows step {last}"
                    )
                self._record()
            self._add_step(number, "pending")

    def _begins(self, kind: type[v.Event], event: Any) -> bool:
        info = self._steps[-1] if self._steps else None
        if kind is v.StepStarted:
            return info is None or info.status != "pending" or info.step != event.step
        if kind is v.RunStarted or kind is v.Keyframe:
            if self._state.seq >= 0:
                name = event.__struct_config__.tag
                raise LogError(f"event {self._state.seq + 1}: {name} can only be the first event")
            return False
        if info is None:
            return kind not in (v.EnginePaused, v.EngineResumed, v.EventsMissing)
        if kind is not v.RequestArrived and event.reason not in _BETWEEN:
            return False
        if kind not in (v.RequestArrived, v.RequestFinished):
            return self._is_over(info)
        # An asynchronous step is scheduled before the one before it finishes.
        is_ahead = info.scheduled is not None and info.status != "pending"
        is_async = is_ahead and self._state.settings.get("async_scheduling", False)
        return is_async or self._is_over(info)

    def _is_over(self, info: _Step) -> bool:
        return info.status == "finished" or (info.status == "joined" and not self._state.plan)

    def _add_step(self, number: int, status: str) -> None:
        seq = self._state.seq
        if self._steps:
            self._steps[-1].last = seq
        self._steps.append(_Step(number, seq + 1, seq, status))

    def _record(self) -> None:
        """Set the measures of the last step that describe its end."""
        info = self._steps[-1]
        info.free, info.cached, unshared, info.shared = self._blocks.count()
        info.used = unshared + info.shared
        info.waiting, info.suspended = self.waiting, self.suspended
        info.running, info.reach = len(self._state.running), self._blocks.reach
        for _request, table, at in info.preemptions:
            for block in table:
                info.happened |= self._fate(info, block, at)

    def _fate(self, info: _Step, block: int, at: int) -> int:
        """Return the bit of what became of a block of a preempted request."""
        takers = [one for one in info.taken if one[0] == block and one[2] > at]
        if takers:
            _, taker, taken_at = takers[-1]
            if not any(one[0] == taker and one[2] > taken_at for one in info.preemptions):
                return _TAKEN
        is_cached = block in self._blocks.cached
        if self._state.refs[block] - is_cached:
            return _OTHERS
        return _CACHED_FATE if is_cached else 0

    def _rejoin(self, _event: v.Keyframe) -> None:
        state = self._state
        self.waiting = (state.reported.waiting if state.reported else 0) + len(state.waiting)
        self.suspended = sum(state.requests[one].preemptions > 0 for one in state.waiting)
        if state.step:
            self._add_step(state.step, "joined")
        elif state.requests:
            self._add_step(1, "pending")

    def _arrived(self, _event: v.RequestArrived) -> None:
        self.waiting += 1

    def _started(self, event: v.StepStarted) -> None:
        self.step = event.step
        self._steps[-1].status = "running"

    # What happens in it

    def _note(self, event: v.Event) -> None:
        if self._steps:
            self._steps[-1].happened |= _BITS[type(event)]

    def _admitted(self, event: v.Admitted) -> None:
        info, request = self._steps[-1], self._state.requests[event.request]
        found = len(event.blocks) * self._state.block_size
        info.found += found
        if found:
            is_large = 2 * found >= request.prompt_length
            info.happened |= _HIT | (_LARGE_HIT if is_large else 0)
        self._leaves_queue(request)

    def _moved(self, event: v.BlocksMoved) -> None:
        if event.target == "gpu":
            name, tokens = event.source, len(event.slots) * self._state.block_size
            setattr(self._steps[-1], name, getattr(self._steps[-1], name) + tokens)

    def _leaves_queue(self, request: v.RequestState) -> None:
        self.waiting -= 1
        self.suspended -= request.preemptions > 0

    def _allocated(self, event: v.BlocksAllocated) -> None:
        if self._steps and (info := self._steps[-1]).preemptions:
            at = self._state.seq + 1
            info.taken += [(block, event.request, at) for block in event.blocks]

    def _copied(self, event: v.BlockCopied) -> None:
        self._note(event)
        if self._steps:
            self._steps[-1].taken.append((event.block, event.request, self._state.seq + 1))

    def _preempted(self, event: v.Preempted) -> None:
        self._note(event)
        info, table = self._steps[-1], self._state.requests[event.request].block_table
        info.preempted += 1
        info.preemptions.append((event.request, list(table), self._state.seq + 1))
        self.waiting += 1
        self.suspended += 1

    def _evicted(self, event: v.RadixEvicted | v.BlockEvicted) -> None:
        if self._steps:
            self._note(event)
            self._steps[-1].evicted += len(self._state.evicted_blocks(event))

    def _request_finished(self, event: v.RequestFinished) -> None:
        self._steps[-1].happened |= _ENDS[event.reason]
        if event.request in self._state.waiting:
            self._leaves_queue(self._state.requests[event.request])

    def _missing(self, event: v.EventsMissing) -> None:
        self._note(event)
        if self._steps:
            self._steps[-1].missing.append(msgspec.to_builtins(event))

    # Its plan

    def plan(self, event: v.StepScheduled, kinds: list[str]) -> None:
        """Note what a step computes: the kinds of its rows."""
        info, state = self._steps[-1], self._state
        info.blocked = event.blocked or info.blocked
        self._note_causes(info, event)
        info.seats += sum(state.requests[one].num_seqs for one in state.running)
        self._note_computed(info, state.step, state.step - 1)
        info.rows += len(kinds)
        for row, kind in zip(event.rows, kinds, strict=True):
            count = row.count
            if row.drafts:
                info.drafted += len(row.drafts)
                info.guessing += 1
            if kind == "decode":
                info.decode += count
                continue
            if kind == "prefill":
                info.prefill += count
            else:
                info.catchup += count
            info.chunks.append((row.request, count))
        info.tokens = info.prefill + info.catchup + info.decode

    def _note_causes(self, info: _Step, event: v.StepScheduled) -> None:
        state, causes = self._state, []
        has_others = self.waiting > self.suspended
        if self.suspended:
            causes.append("preempted")
        if event.blocked and has_others:
            causes.append(event.blocked.reason)
        elif has_others and knowledge(state.source, "waiting_reasons") == "unknown":
            causes.append("unknown")
        deferred = [one for one in event.skipped if one[0] in state.waiting]
        if deferred:
            causes += dict.fromkeys(reason for _, reason in deferred)
            info.deferred = deferred
        self.causes += [cause for cause in causes if cause not in self.causes]

    def _note_computed(self, info: _Step, step: int, number: int) -> None:
        """Note that the pass of a step was computed while another one was scheduled."""
        if not (self._state.settings.get("async_scheduling") and self._state.plans.get(number)):
            return
        for one in reversed(self._steps):
            if one.step == step:
                if number not in one.computed:
                    one.computed.append(number)
                return

    def _scheduled(self, _event: v.StepScheduled) -> None:
        self._steps[-1].scheduled = self._state.seq

    def _reported(self, event: v.StepReported) -> None:
        info = self._steps[-1]
        info.rows += event.prefills + event.decodes
        info.tokens += event.prefill_tokens + event.decodes
        info.prefill += event.prefill_tokens
        info.decode += event.decodes
        self.waiting = event.waiting

    # Its outcome

    def _finished(self, event: v.StepFinished) -> None:
        info, plan = self._steps[-1], self._state.plans.get(event.step, ())
        drafts = {row.request: len(row.drafts) for row in plan if row.drafts}
        for gain in event.tokens:
            info.output += len(gain.ids)
            info.accepted += gain.accepted
            if drafts and gain.accepted < drafts.get(gain.request, 0):
                info.happened |= _REJECTED
        self._time(info, event)

    def _time(self, info: _Step, event: v.StepFinished) -> None:
        t = event.t
        own = {name: t.get(name) for name in ("start", "scheduled", "launched", "ready")}
        if event.step < info.step:
            for one in reversed(self._steps):
                if one.step == event.step:
                    one.times |= own
                    if one.times.get("end") is None:
                        one.times["end"] = own["launched"]
                    break
        else:
            info.times |= own
        info.times["end"], info.times["drafting"] = t.get("end"), t.get("draft_us")
        if own["start"] is None or own["launched"] is not None:
            self._note_computed(info, info.step, event.step)

    def _after_finished(self, _event: v.StepFinished) -> None:
        if self._steps[-1].status != "pending":
            self._steps[-1].status = "finished"
