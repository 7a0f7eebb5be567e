"""Collect what is known of each step and each request while a log is folded: the facts of an index.

`Collector.apply` folds an event and notes what it means for the step and the requests. The board does
the same for a log without an index, in `model.ts` and what it calls, and a test compares the two. What
can no longer change is given away, so that a long log needs little memory.
"""

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from operator import attrgetter
from typing import Any

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.expert_loads import packed
from engine.core.log.fold import State
from engine.core.log.log import LogError
from engine.core.log.state import ROOT
from engine.simulation.facts import knowledge
from engine.simulation.latencies import PausedTime
from visualizer.indexed.facts import (
    Fact,
    Finished,
    LiveNode,
    LiveRequest,
    Request,
    Run,
    Segment,
    Slice,
    Steps,
    Time,
)

# The measures of a step, in the order of `measures.ts`.
_COUNTS = (
    "used shared cached free tokens prefill catchup decode rows output running waiting preempted "
    "evicted found happened suspended seats reach guessing drafted accepted"
).split()
_TIMES = "start scheduled end launched ready drafting".split()
_FREE, _CACHED, _UNSHARED, _SHARED = range(4)
_OPEN = 8  # steps that may still change: with asynchronous scheduling, the one before the last
_MEMORY = {"no_free_blocks", "whole_sequence", "reserved_blocks"}
_ROWS = {"prefill", "catchup", "decode"}
_BITS = {
    v.Preempted: 1,
    v.RadixEvicted: 2,
    v.BlockEvicted: 2,
    v.BlockCopied: 4,
    v.Forked: 8,
    v.EventsMissing: 8192,
}
_REJECTED, _HIT, _LARGE_HIT, _OTHERS, _CACHED_FATE, _TAKEN = 16, 32, 64, 1024, 2048, 4096
_BEGIN = {
    *(v.RunStarted, v.Keyframe, v.StepStarted, v.RequestArrived, v.RequestFinished),
    *(v.RadixEvicted, v.BlockEvicted),
}
_BETWEEN = {"abort", "cleared"}  # reasons of ends and evictions between two steps
_ENDS = {"abort": 256, "error": 512, "stop": 128, "length": 128}


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
    times: dict[str, Time | None] = {}
    chunks: list[tuple[int, int]] = []
    computed: list[int] = []
    deferred: list[tuple[int, str]] = []
    missing: list[dict[str, Any]] = []
    preemptions: list[tuple[int, list[int], int]] = []
    taken: list[tuple[int, int, int]] = []


class _Pass(msgspec.Struct, gc=False):
    """A step that finishes: `Step` in `time_records.ts`."""

    number: int
    failed: bool = False
    begin: Time | None = None
    launched: Time | None = None
    ready: Time | None = None
    end: Time | None = None
    decodes: int = 0
    prefills: int = 0
    blocked: v.Blocked | None = None
    skipped: list[tuple[int, str]] = []
    is_after_gap: bool = False


class Collector:
    """Folds a log and collects its facts. `state` is the state after the events so far."""

    def __init__(self) -> None:
        self.state = State()
        self.step = 0  # the last one that began
        self._run = Run(0, 0, {}, {}, {}, None, None, [], [], [], True)
        self._steps: list[_Step] = []
        self._finished: list[_Pass] = []
        self._count = 0  # of finished steps
        self._open: dict[int, _Pass] = {}
        self._is_after_gap = False
        self._paused = PausedTime()
        self._requests: dict[int, Request] = {}  # that may change
        self._ended: list[Request] = []
        self._total = 0
        self._waiting = self._suspended = 0
        # Blocks: which are in the prefix cache, what each one was at the end of the step, and which
        # have changed since.
        self._cached: set[int] = set()
        self._kinds = bytearray()
        self._of_kind = [0, 0, 0, 0]
        self._touched: set[int] = set()
        self._reach = 0
        # Nodes: the request that has the tokens, and from where on; the step of the latest use.
        self._origins: dict[int, tuple[int, int]] = {}
        self._ticks: list[int] = []  # at the beginning of each step from `_first_tick` on
        self._first_step = self._first_tick = 0
        self._used: dict[int, int] = {}  # with the hash cache

    def apply(self, event: v.Event) -> None:
        """Fold the next event. Raises LogError if it does not fit what came before."""
        kind, seq = type(event), self.state.seq + 1
        try:
            if (kind in _BEGIN or not self._steps) and self._begins_step(kind, event):
                self._begin_step(event)
            if before := _BEFORE.get(kind):
                before(self, event)
            state = self.state
            state.apply(event)
            if after := _AFTER.get(kind):
                after(self, event)
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
            if isinstance(error, LogError):
                raise
            name = event.__struct_config__.tag
            raise LogError(f"event {seq}: {name} does not fit what came before") from error
        if self._steps:
            self._steps[-1].last = state.seq

    def facts(self, *, is_end: bool = False) -> list[Fact]:
        """Return what can no longer change and was not returned before; at the end, all of it."""
        if is_end and self._steps:
            self._record()
        facts: list[Fact] = []
        cut = len(self._steps) - (0 if is_end else _OPEN)
        if cut > 0:
            steps, self._steps = self._steps[:cut], self._steps[cut:]
            names = set(Steps.__struct_fields__) - {"counts", "times"}
            counts = [_column(steps, name) for name in _COUNTS]
            times = [[one.times.get(name) for one in steps] for name in _TIMES]
            columns = {name: _column(steps, name) for name in names}
            facts.append(Steps(**columns, counts=counts, times=times))
        if done := self._finished:
            facts.append(Finished(*(_column(done, name) for name in Finished.__struct_fields__)))
            self._finished = []
        ended = self._ended
        if is_end:
            ended = sorted(self._requests.values(), key=lambda one: one.index)
            for request in ended:
                if (live := self.state.requests.get(request.id)) is not None:
                    request.tokens, request.texts = live.tokens, live.texts
        elif self._steps:
            # A row in vain is reported a step after its request ended.
            old = self._steps[0].step
            ended = [one for one in ended if one.finished is not None and one.finished[0] < old]
        gone = {one.id for one in ended}
        self._ended = [one for one in self._ended if one.id not in gone]
        for request in ended:
            del self._requests[request.id]
            request.token_steps = _differences(request.token_steps)
        facts += ended
        if is_end:
            facts.append(self._whole())
        return facts

    def slice(self) -> Slice:
        """Return the state without its tokens."""
        state, known = self.state, self._origins
        requests, nodes = state.requests, state.nodes
        state.requests, state.nodes = {}, {}
        frame = state.keyframe().state
        state.requests, state.nodes = requests, nodes
        frame.refs = []
        self._origins = {node: known[node] for node in nodes if node in known}
        own_nodes, contents = [], []
        for node in nodes.values():
            origin, begin = self._origins.get(node.id, (-1, 0))
            if origin < 0:
                contents.append((node.tokens, node.texts))
            used = self._used_in(node.id, node.last)
            own_nodes.append(
                LiveNode(
                    *(node.id, node.parent, node.last, node.lock_ref, origin, begin, used),
                    *(node.blocks, node.copies, node.source, node.hash, node.media),
                )
            )
        own_requests = [
            LiveRequest(
                *(one.id, len(one.tokens), one.num_computed_tokens, one.block_table),
                *(one.last_node, one.num_seqs, one.preemptions),
            )
            for one in requests.values()
        ]
        return Slice(frame, own_requests, own_nodes, contents, self._reach)

    # Steps

    def _begins_step(self, kind: type[v.Event], event: Any) -> bool:
        info = self._steps[-1] if self._steps else None
        if kind is v.StepStarted:
            return info is None or info.status != "pending" or info.step != event.step
        if kind is v.RunStarted or kind is v.Keyframe:
            if self.state.seq >= 0:
                name = event.__struct_config__.tag
                raise LogError(f"event {self.state.seq + 1}: {name} can only be the first event")
            return False
        if info is None:
            return kind not in (v.EnginePaused, v.EngineResumed, v.EventsMissing)
        if kind is not v.RequestArrived and event.reason not in _BETWEEN:
            return False
        if kind not in (v.RequestArrived, v.RequestFinished):
            return self._is_over(info)
        # An asynchronous step is scheduled before the one before it finishes.
        is_ahead = info.scheduled is not None and info.status != "pending"
        is_async = is_ahead and self.state.settings.get("async_scheduling", False)
        return is_async or self._is_over(info)

    def _is_over(self, info: _Step) -> bool:
        return info.status == "finished" or (info.status == "joined" and not self.state.plan)

    def _begin_step(self, event: v.Event) -> None:
        last = self._steps[-1].step if self._steps else self.state.step
        number = event.step if isinstance(event, v.StepStarted) else last + 1
        if self._steps:
            if number != last + 1:
                raise LogError(f"event {self.state.seq + 1}: step {number} follows step {last}")
            self._record()
        self._add_step(number, "pending")

    def _add_step(self, number: int, status: str) -> None:
        seq = self.state.seq
        self._steps.append(_Step(number, seq + 1, seq, status))

    def _record(self) -> None:
        """Set the measures of the last step that describe its end."""
        info, state, kinds, of_kind = self._steps[-1], self.state, self._kinds, self._of_kind
        refs, cached = state.refs, self._cached
        if len(refs) > len(kinds):  # another engine reported further blocks
            of_kind[_FREE] += len(refs) - len(kinds)
            kinds.extend(bytes(len(refs) - len(kinds)))
        held = [block for hold in state.holds.values() for block in hold.block_table]
        for block in self._touched:
            if not (count := refs[block]):
                kind = _FREE
            else:
                count -= (block in cached) + (held.count(block) if held else 0)
                kind = _SHARED if count > 1 else _UNSHARED if count == 1 else _CACHED
            if (before := kinds[block]) != kind:
                of_kind[before] -= 1
                of_kind[kind] += 1
                kinds[block] = kind
        self._touched.clear()
        info.free, info.cached, unshared, info.shared = of_kind
        info.used = unshared + info.shared
        info.waiting, info.suspended = self._waiting, self._suspended
        info.running, info.reach = len(state.running), self._reach
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
        is_cached = block in self._cached
        if self.state.refs[block] - is_cached:
            return _OTHERS
        return _CACHED_FATE if is_cached else 0

    # Before an event is applied

    def _before_any(self, event: v.Event) -> None:
        if self._steps:
            self._steps[-1].happened |= _BITS.get(type(event), 0)

    def _before_admitted(self, event: v.Admitted) -> None:
        info, state, request = self._steps[-1], self.state, self._requests[event.request]
        step, found = info.step, len(event.blocks) * state.block_size
        request.admissions.append((step, found, event.resumed, state.seq + 1))
        if not event.resumed:
            request.admitted = (step, found, *state.adopted_prefix(event.node))
        _end_wait(request, step - 1)
        if event.resumed and request.preemptions:
            request.preemptions[-1] = (*request.preemptions[-1][:2], step)
        info.found += found
        if found:
            is_large = 2 * found >= request.prompt_length
            info.happened |= _HIT | (_LARGE_HIT if is_large else 0)
        self._waiting -= 1
        self._suspended -= state.requests[event.request].preemptions > 0
        self._touched.update(event.blocks)

    def _before_allocated(self, event: v.BlocksAllocated) -> None:
        if self._steps and (info := self._steps[-1]).preemptions:
            at = self.state.seq + 1
            info.taken += [(block, event.request, at) for block in event.blocks]
        self._touched.update(event.blocks)
        self._reach = max(self._reach, max(event.blocks, default=-1) + 1)

    def _before_copied(self, event: v.BlockCopied) -> None:
        self._before_any(event)
        if self._steps:
            self._steps[-1].taken.append((event.block, event.request, self.state.seq + 1))
        self._touched.update((event.block, event.source))
        self._reach = max(self._reach, event.block + 1)

    def _before_preempted(self, event: v.Preempted) -> None:
        info, state, request = self._steps[-1], self.state, self._requests[event.request]
        live = state.requests[event.request]
        request.preemptions.append((info.step, live.num_computed_tokens, None))
        ends = [
            row.start + row.count - len(row.drafts)
            for rows in state.plans.values()
            for row in rows
            if row.request == event.request
        ]
        request.computed = max(request.computed, live.num_computed_tokens, *ends)
        by = None if event.needed_by < 0 else event.needed_by
        request.segments.append(Segment("preempted", info.step, None, by=by))
        info.happened |= 1
        info.preempted += 1
        info.preemptions.append((event.request, list(live.block_table), state.seq + 1))
        self._touched.update(live.block_table)
        self._use(event.request)
        self._waiting += 1
        self._suspended += 1

    def _before_evicted(self, event: v.RadixEvicted | v.BlockEvicted) -> None:
        blocks = self.state.evicted_blocks(event)
        if self._steps:
            self._before_any(event)
            self._steps[-1].evicted += len(blocks)
        self._cached.difference_update(blocks)
        self._touched.update(blocks)

    def _before_withdrawn(self, event: v.BlockWithdrawn) -> None:
        self._cached.discard(event.block)
        self._touched.add(event.block)

    def _before_scheduled(self, event: v.StepScheduled) -> None:
        info, state = self._steps[-1], self.state
        done = self._open.setdefault(state.step, _Pass(state.step))
        done.failed = False
        done.blocked, done.skipped = event.blocked, event.skipped
        info.blocked = event.blocked or info.blocked
        if event.blocked is not None:
            self._note_blocked(state.step, event.blocked)
        self._note_causes(info, event)
        info.seats += sum(state.requests[one].num_seqs for one in state.running)
        self._note_computed(info, state.step, state.step - 1)
        self._plan(info, done, event.rows)
        for id_, reason in event.skipped:
            if id_ in state.waiting:
                continue
            segments = self._requests[id_].segments
            last = segments[-1] if segments else None
            is_same = last is not None and last.kind == "stalled" and last.reason == reason
            if last is not None and is_same and last.end == info.step - 1:
                last.end = info.step
            else:
                segments.append(Segment("stalled", info.step, info.step, reason=reason))

    def _plan(self, info: _Step, done: _Pass, rows: list[v.ScheduledRow]) -> None:
        live, requests, step = self.state.requests, self._requests, info.step
        info.rows += len(rows)
        for row in rows:
            id_, count = row.request, row.count
            state, request = live[id_], requests[id_]
            kind = _add_row(request, row, step, state)
            if row.drafts:
                info.drafted += len(row.drafts)
                info.guessing += 1
            if kind == "decode":
                info.decode += count
                done.decodes += 1
            else:
                if kind == "prefill":
                    info.prefill += count
                else:
                    info.catchup += count
                done.prefills += 1
                info.chunks.append((id_, count))
        info.tokens = info.prefill + info.catchup + info.decode

    def _note_blocked(self, step: int, blocked: v.Blocked) -> None:
        request = self._requests.get(blocked.request)
        is_last = blocked.reason == "reserved_blocks" or self.state.settings.get("preemption")
        if request and request.shortfall is None and is_last and blocked.reason in _MEMORY:
            request.shortfall = step, blocked.need - blocked.have

    def _note_causes(self, info: _Step, event: v.StepScheduled) -> None:
        state, causes = self.state, []
        has_others = self._waiting > self._suspended
        if self._suspended:
            causes.append("preempted")
        if event.blocked and has_others:
            causes.append(event.blocked.reason)
        elif has_others and knowledge(state.source, "waiting_reasons") == "unknown":
            causes.append("unknown")
        deferred = [one for one in event.skipped if one[0] in state.waiting]
        if deferred:
            causes.append("policy")
            info.deferred = deferred
        for cause in causes:
            if cause not in self._run.causes:
                self._run.causes.append(cause)

    def _note_computed(self, info: _Step, step: int, number: int) -> None:
        """Note that the pass of a step was computed while another one was scheduled."""
        if not (self.state.settings.get("async_scheduling") and self.state.plans.get(number)):
            return
        for one in reversed(self._steps):
            if one.step == step:
                if number not in one.computed:
                    one.computed.append(number)
                return

    def _before_reported(self, event: v.StepReported) -> None:
        info = self._steps[-1]
        info.rows += event.prefills + event.decodes
        info.tokens += event.prefill_tokens + event.decodes
        info.prefill += event.prefill_tokens
        info.decode += event.decodes
        self._waiting = event.waiting

    def _before_finished(self, event: v.StepFinished) -> None:
        info, state = self._steps[-1], self.state
        step, t = info.step, event.t
        logprobs = t.get("logprobs")
        drafts = {
            row.request: len(row.drafts) for row in state.plans.get(event.step, ()) if row.drafts
        }
        for number, gain in enumerate(event.tokens):
            request, ids = self._requests[gain.request], gain.ids
            info.output += len(ids)
            place = len(request.token_steps)
            request.token_steps += [step] * len(ids)
            own = logprobs[number] if logprobs and number < len(logprobs) else []
            if gain.accepted or gain.forced or gain.allowed:
                info.accepted += gain.accepted
                _note_tokens(request, gain, own, number, t)
            elif own:
                request.logprobs += [1] * (place - len(request.logprobs))
                request.logprobs += own[: len(ids)]
            if drafts and gain.accepted < drafts.get(gain.request, 0):
                info.happened |= _REJECTED
            segments = request.segments
            if segments and segments[-1].begin == step and segments[-1].drafts:
                segments[-1].accepted = gain.accepted
        for id_ in event.wasted:
            self._waste(id_, event.step)
        self._time(info, event)
        self._finish_pass(event)

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

    def _finish_pass(self, event: v.StepFinished) -> None:
        done = self._open.pop(event.step, None) or _Pass(event.step)
        if any(other < event.step for other in self._open):
            return  # it failed while the step before was being computed
        t = event.t
        done.begin, done.end = t.get("start"), t.get("end")
        done.launched = t.get("launched", t.get("scheduled", done.end))
        done.ready = t.get("ready", done.end)
        if not done.decodes + done.prefills:
            done.launched = done.ready = done.end
        done.is_after_gap, self._is_after_gap = self._is_after_gap, False
        self._run.has_times &= done.end is not None
        for gain in event.tokens:
            request = self._requests[gain.request]
            if request.first_token is None:
                live = self.state.requests[gain.request]
                if len(live.tokens) == live.prompt_length:
                    request.first_token = self._count
        self._finished.append(done)
        self._count += 1

    def _waste(self, id_: int, step: int) -> None:
        """Make a row in vain a segment of its own."""
        request = self._requests.get(id_)
        if request is None:
            return
        state = self.state
        if id_ not in state.requests:
            wasted = "ended"
        else:
            wasted = "preempted" if id_ in state.waiting else "dropped"
        for segments in (request.segments, request.before):
            for at in reversed(range(len(segments))):
                one = segments[at]
                if one.kind in _ROWS and one.begin <= step <= (one.end or 0):
                    replace = msgspec.structs.replace
                    parts = [
                        replace(one, end=step - 1),
                        replace(one, begin=step, end=step, wasted=wasted),
                        replace(one, begin=step + 1),
                    ]
                    segments[at : at + 1] = [p for p in parts if p.begin <= (p.end or 0)]
                    return

    def _before_ended(self, event: v.RequestFinished) -> None:
        info, state, request = self._steps[-1], self.state, self._requests[event.request]
        step, live = info.step, state.requests[event.request]
        last = max(step if info.status != "pending" else step - 1, request.arrived or 0)
        request.finished = last, event.reason, event.message, state.seq + 1
        _end_wait(request, step - 1)
        request.ends_at = self._count + (event.reason == "error")
        request.tokens, request.texts = live.tokens, live.texts
        info.happened |= _ENDS[event.reason]
        self._ended.append(request)
        if event.request in state.waiting:
            self._waiting -= 1
            self._suspended -= live.preemptions > 0
        self._touched.update(live.block_table)
        self._use(event.request)

    def _before_forked(self, event: v.Forked) -> None:
        self._before_any(event)
        self._touched.update(self.state.requests[event.parent].block_table)

    def _before_trimmed(self, event: v.BlocksTrimmed) -> None:
        self._touched.update(self.state.requests[event.request].block_table[event.keep :])

    def _before_joined(self, event: v.RadixJoined) -> None:
        self._touched.update(self.state.requests[event.request].block_table)
        self._touched.update(event.blocks)

    def _before_split(self, event: v.RadixSplit) -> None:
        if (known := self._origins.get(event.node)) is not None:
            origin, begin = self._origins[event.upper] = known
            self._origins[event.node] = origin, begin + event.at * self.state.block_size

    def _before_inserted(self, event: v.RadixInserted) -> None:
        nodes, size = self.state.nodes, self.state.block_size
        node, begin = event.parent, 0
        while node != ROOT:
            begin += len(nodes[node].blocks) * size
            if node in self._origins:
                begin += self._origins[node][1]
                break
            node = nodes[node].parent
        self._origins[event.node] = event.request, begin
        self._cached.update(event.blocks)
        self._touched.update(event.blocks)

    def _before_extended(self, event: v.RadixExtended) -> None:
        # The request has the node's tokens, too, and those of the new blocks.
        if (known := self._origins.get(event.node)) is not None:
            self._origins[event.node] = event.request, known[1]
        else:
            above = self.state.nodes[event.node].parent
            self._before_inserted(v.RadixInserted(event.request, event.node, above, event.blocks))
        self._cached.update(event.blocks)
        self._touched.update(event.blocks)

    def _before_stored(self, event: v.BlocksStored) -> None:
        state, size = self.state, self.state.block_size
        begin = state._first_token(state.requests[event.request], event.blocks)
        for at, node in enumerate(event.nodes):
            if node not in state.nodes:
                self._used.pop(node, None)
                self._origins[node] = event.request, begin + at * size
        self._cached.update(event.blocks)
        self._touched.update(event.blocks)
        self._use(event.request)

    def _before_adopted(self, event: v.PrefixAdopted) -> None:
        for node in event.nodes:
            self._origins.pop(node, None)
        self._cached.update(event.blocks)
        self._touched.update(event.blocks)
        self._reach = max(self._reach, max(event.blocks, default=-1) + 1)

    def _before_held(self, event: v.PrefixHeld) -> None:
        self._touched.update(event.blocks)

    def _before_released(self, event: v.PrefixReleased) -> None:
        hold = self.state.holds[event.hold]
        self._touched.update(hold.block_table)
        self._use_path(hold.last_node)

    def _before_missing(self, event: v.EventsMissing) -> None:
        self._before_any(event)
        self._is_after_gap = True
        if self._steps:
            self._steps[-1].missing.append(msgspec.to_builtins(event))

    def _before_started(self, event: v.StepStarted) -> None:
        self._open[event.step] = _Pass(event.step, failed=True)
        if not self._ticks:
            self._first_step = event.step
        self._ticks.append(self.state.tick)

    # After an event was applied

    def _after_run(self, event: v.RunStarted) -> None:
        self._run.model, self._run.tokenizer = event.model, event.tokenizer
        self._begin_blocks()

    def _after_keyframe(self, event: v.Keyframe) -> None:
        state, run = self.state, self._run
        run.first_seq, run.steps_before = event.seq, state.step
        self._first_tick = state.tick
        self._paused.note(event)
        for node in state.nodes.values():
            self._cached.update(node.blocks, node.copies)
        self._begin_blocks()
        self._touched.update(range(len(state.refs)))
        self._reach = max((block + 1 for block, refs in enumerate(state.refs) if refs), default=0)
        self._waiting = (state.reported.waiting if state.reported else 0) + len(state.waiting)
        self._suspended = sum(state.requests[one].preemptions > 0 for one in state.waiting)
        if state.step:
            self._add_step(state.step, "joined")
        elif state.requests:
            self._add_step(1, "pending")
        step = max(1, state.step)
        for _, live in sorted(state.requests.items()):
            request = self._meet(live)
            self._take_lane(request, step)
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
            if not rows:
                continue
            done = self._open[number] = _Pass(number)
            for row in rows:
                if row.request not in state.requests:
                    continue  # it may have ended while its row is computed
                live = state.requests[row.request]
                kind = _add_row(self._requests[live.id], row, number, live, is_before=True)
                done.decodes += kind == "decode"
                done.prefills += kind != "decode"

    def _begin_blocks(self) -> None:
        blocks = len(self.state.refs)
        self._kinds = bytearray(blocks)
        self._of_kind[_FREE] = blocks

    def _after_arrived(self, event: v.RequestArrived) -> None:
        state, step = self.state, self._steps[-1].step
        request = self._meet(state.requests[event.request])
        request.hashes = event.hashes
        request.arrived, request.arrived_at = step, event.t.get("at")
        request.segments.append(Segment("waiting", step, None))
        request.examined, request.begins_at = state.step + 1, self._count
        self._waiting += 1

    def _after_forked(self, event: v.Forked) -> None:
        parent, step = self._requests[event.parent], self._steps[-1].step
        request = self._meet(self.state.requests[event.request])
        for name in _SHARED_BY_SAMPLES:
            setattr(request, name, getattr(parent, name))
        request.forked = step, parent.id
        replace = msgspec.structs.replace
        request.before = [replace(one) for one in (*parent.before, *parent.segments)]
        self._use(event.request)
        self._take_lane(request, step)

    def _after_admitted(self, event: v.Admitted) -> None:
        self._use(event.request)
        self._take_lane(self._requests[event.request], self._steps[-1].step)

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
        )
        self._total += 1
        self._requests[live.id] = request
        return request

    def _take_lane(self, request: Request, step: int) -> None:
        if request.lane is None:
            request.lane = self.state.lanes.of(request.id)
            if request.lane is not None:
                request.laned_at = step

    def _after_step_started(self, event: v.StepStarted) -> None:
        self.step = event.step
        self._steps[-1].status = "running"

    def _after_scheduled(self, _event: v.StepScheduled) -> None:
        self._steps[-1].scheduled = self.state.seq

    def _after_finished(self, event: v.StepFinished) -> None:
        self._paused.note(event)
        if self._steps[-1].status != "pending":
            self._steps[-1].status = "finished"

    def _after_pause(self, event: v.EnginePaused | v.EngineResumed) -> None:
        self._paused.note(event)

    def _after_stored(self, event: v.BlocksStored) -> None:
        self._use(event.request)

    def _after_held(self, event: v.PrefixHeld) -> None:
        self._use_path(event.node)

    def _after_adopted(self, event: v.PrefixAdopted) -> None:
        self._use_path(event.nodes[-1])
        self._touched.update(*(node.blocks for node in self.state._path(event.nodes[-1])))

    def _after_reported(self, event: v.BlocksReported) -> None:
        if event.blocks:
            for node in event.nodes:
                self._used[node] = self.state.step
        self._cached.update(event.blocks)
        self._touched.update(event.blocks)
        self._reach = len(self.state.refs)

    # When nodes were used

    def _use(self, request: int) -> None:
        if self.state.is_hashed:
            self._use_path(self.state.requests[request].last_node)

    def _use_path(self, node: int) -> None:
        if self.state.is_hashed:
            for one in self.state._path(node):
                self._used[one.id] = self.state.step

    def _used_in(self, node: int, last: int) -> int | None:
        if last <= self._first_tick:  # always with the hash cache
            return self._used.get(node)
        at = bisect_left(self._ticks, last)
        return self._first_step + at - 1 if at else self._run.steps_before

    def _whole(self) -> Run:
        state, run = self.state, self._run
        run.settings, run.classes, run.source = state.settings, state.classes, state.source
        run.expert_loads = [packed(layer) for layer in state.expert_loads]
        run.pauses = [*self._paused.intervals]
        return run


_SHARED_BY_SAMPLES = (
    "arrived",
    "arrived_at",
    "n",
    "examined",
    "begins_at",
    "admitted",
    "computed",
    "hashes",
)


def _add_row(
    request: Request,
    row: v.ScheduledRow,
    step: int,
    live: v.RequestState,
    *,
    is_before: bool = False,
) -> str:
    """Add a row of a step, and return its kind; plain decodes share a segment.

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
                return "decode"
        segments.append(Segment("decode", step, step, drafts, 0, recomputed))
        return "decode"
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
    return kind


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
    for index, logprob in enumerate(logprobs[: max(0, from_tool)]):
        request.logprobs += [1] * (place + index - len(request.logprobs))
        request.logprobs.append(logprob)
    for index, allowed in enumerate(gain.allowed[: len(gain.ids)]):
        if allowed:
            request.masks += [None] * (place + index - len(request.masks))
            best = t["wanted"][number][index] if "wanted" in t else None
            mass = t["mass"][number][index] if "mass" in t else None
            request.masks.append((allowed, best[1] if best else None, mass))


def _column(values: list[Any], name: str) -> list[Any]:
    return list(map(attrgetter(name), values))


def _differences(values: list[int]) -> list[int]:
    return values[:1] + [after - before for before, after in pairwise(values)]


_BEFORE: dict[type[v.Event], Callable[[Collector, Any], None]] = {
    v.StepStarted: Collector._before_started,
    v.Admitted: Collector._before_admitted,
    v.BlocksAllocated: Collector._before_allocated,
    v.BlockCopied: Collector._before_copied,
    v.Preempted: Collector._before_preempted,
    v.RadixEvicted: Collector._before_evicted,
    v.BlockEvicted: Collector._before_evicted,
    v.BlockWithdrawn: Collector._before_withdrawn,
    v.StepScheduled: Collector._before_scheduled,
    v.StepReported: Collector._before_reported,
    v.StepFinished: Collector._before_finished,
    v.RequestFinished: Collector._before_ended,
    v.Forked: Collector._before_forked,
    v.BlocksTrimmed: Collector._before_trimmed,
    v.RadixJoined: Collector._before_joined,
    v.RadixSplit: Collector._before_split,
    v.RadixInserted: Collector._before_inserted,
    v.RadixExtended: Collector._before_extended,
    v.BlocksStored: Collector._before_stored,
    v.PrefixAdopted: Collector._before_adopted,
    v.PrefixHeld: Collector._before_held,
    v.PrefixReleased: Collector._before_released,
    v.EventsMissing: Collector._before_missing,
}
_AFTER: dict[type[v.Event], Callable[[Collector, Any], None]] = {
    v.RunStarted: Collector._after_run,
    v.Keyframe: Collector._after_keyframe,
    v.RequestArrived: Collector._after_arrived,
    v.Forked: Collector._after_forked,
    v.Admitted: Collector._after_admitted,
    v.StepStarted: Collector._after_step_started,
    v.StepScheduled: Collector._after_scheduled,
    v.StepFinished: Collector._after_finished,
    v.EnginePaused: Collector._after_pause,
    v.EngineResumed: Collector._after_pause,
    v.BlocksStored: Collector._after_stored,
    v.PrefixHeld: Collector._after_held,
    v.PrefixAdopted: Collector._after_adopted,
    v.BlocksReported: Collector._after_reported,
}
