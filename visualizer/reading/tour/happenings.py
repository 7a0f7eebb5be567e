"""What happens in a log, collected in one pass over its folded events, for a tour to choose from.

Of each kind the largest is kept, so that the pass needs little memory for a long log.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from visualizer.reading.busy_time import BusyTime


@dataclass(slots=True)
class Life:
    """A request from its arrival to its end. Steps and times are None if the log does not have them.

    arrived   the time of its arrival
    admitted, first, finished   the steps of its admission, of its first token and of its end
    seen      how many steps had been scheduled when it arrived, and when it was admitted or the log
              ends
    prompt, output   its number of prompt tokens and, once it has ended, of output tokens
    """

    id: int
    arrived: int | None
    seen: tuple[int, int]
    prompt: int
    admitted: int | None = None
    first: int | None = None
    finished: int | None = None
    reason: str = ""
    output: int = 0


@dataclass(slots=True)
class Loss:
    """A preemption in `step`, and what it costs.

    by         the request that needed the blocks; below 0: unknown
    free       blocks that were free
    computed   tokens whose KV the victim had, with those that were being computed
    table      its blocks
    kept       of these, blocks that stayed in the cache or with other requests
    resumed    the step in which it resumed; None: it did not
    found      tokens found in the cache then
    again      how many of `computed` it computed again afterwards
    """

    request: int
    step: int
    by: int
    free: int
    computed: int
    table: list[int]
    kept: int = 0
    resumed: int | None = None
    found: int = 0
    again: int = 0


@dataclass(slots=True)
class Eviction:
    """The blocks evicted in `step` for a request; `free` were free before the first of them."""

    request: int
    step: int
    free: int
    blocks: list[int] = field(default_factory=list)

    @property
    def rank(self) -> tuple[int, bool, int]:
        """The most blocks come first; then those for a request; then the earliest."""
        return len(self.blocks), self.request >= 0, -self.step


@dataclass(slots=True)
class Hit:
    """An admission that found tokens in the cache; `sharers` are requests that use the same blocks."""

    request: int
    step: int
    prompt: int
    found: int
    blocks: list[int]
    sharers: list[int]
    adopted: tuple[int, str] = (0, "")


@dataclass(slots=True)
class Drafts:
    """The drafts of a request in a step, how many were accepted, and how many tokens it gained."""

    request: int
    step: int
    drafts: int
    accepted: int
    gained: int


@dataclass(slots=True)
class Copy:
    """A block that was copied because `sharers`, of which one had to write into it, shared it."""

    request: int
    step: int
    source: int
    block: int
    sharers: int


@dataclass(slots=True)
class Fault:
    """What went wrong, or what a client stopped. `kind` is "failed", "error", "abort", "missing",
    "draft" or "paused".

    step      during it, or after it if it had finished; `is_after` says which
    requests  the requests that ended
    amount    output tokens of an aborted request, missing messages, or paused time
    """

    kind: str
    step: int
    is_after: bool
    requests: list[int] = field(default_factory=list)
    message: str = ""
    amount: int = 0


class Happenings:
    """The largest of each kind, and what the scenes of a whole run need.

    begins   by step, of those that admitted or preempted a request: when it began
    last_step  the last finished step that has times; None if none has
    evicted  how many blocks were evicted for room in the whole run
    reasons  by number of scheduled steps: why the head of the queue was not admitted
    drafted, accepted   drafts in the whole run
    largest  how many tokens the largest step computes, and of which requests
    state    at the end
    """

    def __init__(self, log: Iterable[v.Event]) -> None:
        self.lives: dict[int, Life] = {}
        self.begins: dict[int, int] = {}
        self.last_step: int | None = None
        self.reasons: list[str] = []
        self.losses: list[Loss] = []
        self.eviction: Eviction | None = None
        self.evicted = 0
        self.hit: Hit | None = None
        self.drafts: Drafts | None = None
        self.drafted = self.accepted = 0
        self.largest: tuple[int, list[int]] = 0, []
        self.copy: Copy | None = None
        self.faults: dict[str, Fault] = {}
        self.busy = BusyTime()
        self.state = State()
        self._open: dict[int, Loss] = {}  # by victim: its last preemption
        self._scheduled: set[int] = set()  # steps that have not finished
        self._changed: set[int] = set()  # of these, steps that admitted or preempted a request
        self._evictions: dict[int, Eviction] = {}  # of the current step, by request
        self._finished = 0
        self._paused_at: int | None = None
        for event in log:
            if (note := _BEFORE.get(type(event))) is not None:
                note(self, event)
            self.state.apply(event)
            if (note := _AFTER.get(type(event))) is not None:
                note(self, event)
        for life in self.lives.values():
            if life.admitted is None:
                life.seen = life.seen[0], len(self.reasons)

    def wait(self, life: Life) -> tuple[int, int]:
        """Return from when to when a request waited to be admitted, or until the log ends."""
        last = self.busy.end
        until = last if life.admitted is None else self.begins.get(life.admitted, last)
        return life.arrived or 0, until

    def between(self, begin: int, end: int) -> int:
        """Return the busy time between two instants."""
        return max(0, self.busy.until(end) - self.busy.until(begin))

    def _fault(self, kind: str, **more: object) -> Fault:
        """Return the fault of this kind in this step; another step's one is not replaced."""
        step, is_after = self.state.step, self._finished >= self.state.step
        fault = self.faults.setdefault(kind, Fault(kind, step, is_after))
        return fault if fault.step == step else Fault(kind, step, is_after)

    # Before an event is applied

    def _preempted(self, event: v.Preempted) -> None:
        state = self.state
        request = state.requests[event.request]
        ends = [
            row.start + row.count - len(row.drafts)
            for rows in state.plans.values()
            for row in rows
            if row.request == event.request
        ]
        computed = max([request.num_computed_tokens, *ends])
        table = request.held_blocks
        free = len(state.free)
        self._changed.add(state.step)
        loss = Loss(event.request, state.step, event.needed_by, free, computed, table)
        self._open[event.request] = loss
        self.losses.append(loss)

    def _evicted(self, event: v.RadixEvicted | v.BlockEvicted) -> None:
        if event.reason != "room":
            return
        step, by, blocks = self.state.step, event.needed_by, self.state.evicted_blocks(event)
        if any(one.step < step for one in self._evictions.values()):
            self._evictions.clear()
        now = self._evictions.setdefault(by, Eviction(by, step, len(self.state.free)))
        now.blocks += blocks
        self.evicted += len(blocks)
        if self.eviction is None or now.rank > self.eviction.rank:
            self.eviction = now

    def _block_copied(self, event: v.BlockCopied) -> None:
        if self.copy is None:
            tables = (one.block_table for one in self.state.requests.values())
            sharers = sum(event.source in table for table in tables)
            self.copy = Copy(event.request, self.state.step, event.source, event.block, sharers)

    def _step_finished(self, event: v.StepFinished) -> None:
        if "end" in event.t:
            self.last_step = event.step
            self.busy.note(event)
            if event.step in self._changed:
                self.begins[event.step] = event.t["start"]
        self._changed.discard(event.step)
        plan = {row.request: len(row.drafts) for row in self.state.plans.get(event.step, [])}
        for gain in event.tokens:
            life = self.lives.get(gain.request)
            if life is not None and life.first is None:
                life.first = event.step
            if drafts := plan.get(gain.request, 0):
                self.drafted, self.accepted = self.drafted + drafts, self.accepted + gain.accepted
                best = self.drafts
                if best is None or (gain.accepted, drafts) > (best.accepted, best.drafts):
                    new = Drafts(gain.request, event.step, drafts, gain.accepted, len(gain.ids))
                    self.drafts = new
        self._finished = max(self._finished, event.step)
        if event.step not in self._scheduled and not self.state.source:
            fault = self._fault("failed")
            fault.is_after = False
        self._scheduled.discard(event.step)
        if event.draft_error:
            fault = self._fault("draft")
            fault.step, fault.message, fault.is_after = event.step, event.draft_error, False

    def _request_finished(self, event: v.RequestFinished) -> None:
        self._open.pop(event.request, None)
        life, ended = self.lives.get(event.request), self.state.requests[event.request]
        output = len(ended.tokens) - ended.prompt_length
        if life is not None:
            life.finished, life.reason, life.output = self.state.step, event.reason, output
        if event.reason in ("error", "abort"):
            fault = self._fault(event.reason)
            fault.message = fault.message or event.message
            if not fault.requests:
                fault.amount = output
            fault.requests.append(event.request)

    # After it is applied

    def _keyframe(self, event: v.Keyframe) -> None:
        self._finished = event.state.step
        for one in event.state.requests:
            self._meet(one.id, None, one.prompt_length)
            life = self.lives[one.id]
            life.first = event.state.step if len(one.tokens) > one.prompt_length else None
        self._scheduled |= self.state.plans.keys()

    def _arrived(self, event: v.RequestArrived) -> None:
        self._meet(event.request, event.t.get("at"), len(event.prompt))

    def _meet(self, request: int, arrived: int | None, prompt: int) -> None:
        seen = len(self.reasons)
        self.lives[request] = Life(request, arrived, (seen, seen), prompt)

    def _admitted(self, event: v.Admitted) -> None:
        state, request = self.state, event.request
        found = len(event.blocks) * state.block_size
        self._changed.add(state.step)
        if event.resumed:
            if (loss := self._open.get(request)) is not None and loss.resumed is None:
                loss.resumed, loss.found = state.step, found
            return
        life = self.lives.get(request)
        if life is not None and life.admitted is None:
            life.admitted, life.seen = state.step, (life.seen[0], len(self.reasons))
        if found and (self.hit is None or found > self.hit.found):
            blocks = set(event.blocks)
            sharers = [
                one
                for one in state.running
                if one != request and not blocks.isdisjoint(state.requests[one].block_table)
            ]
            self.hit = Hit(
                request,
                state.step,
                state.requests[request].prompt_length,
                found,
                event.blocks,
                sharers,
                state.adopted_prefix(event.node),
            )

    def _lost(self, event: v.Preempted) -> None:
        loss, refs = self._open[event.request], self.state.refs
        loss.kept = sum(refs[block] > 0 for block in loss.table)

    def _step_scheduled(self, event: v.StepScheduled) -> None:
        step = self.state.step
        self._scheduled.add(step)
        self.reasons.append(event.blocked.reason if event.blocked else "")
        tokens = sum(row.count for row in event.rows)
        if tokens > self.largest[0]:
            self.largest = tokens, [row.request for row in event.rows]
        for row in event.rows:
            loss = self._open.get(row.request)
            if loss is not None and loss.resumed is not None:
                end = min(row.start + row.count - len(row.drafts), loss.computed)
                loss.again += max(0, end - row.start)

    def _events_missing(self, event: v.EventsMissing) -> None:
        self._fault("missing").amount += event.count

    def _paused(self, event: v.EnginePaused) -> None:
        self._paused_at = event.t.get("at")

    def _resumed(self, event: v.EngineResumed) -> None:
        if self._paused_at is not None and "at" in event.t:
            long, known = event.t["at"] - self._paused_at, self.faults.get("paused")
            if known is None or long > known.amount:
                self.faults["paused"] = Fault("paused", self.state.step, True, amount=long)
        self._paused_at = None


_BEFORE: dict[type[v.Event], Callable[[Happenings, Any], None]] = {
    v.Preempted: Happenings._preempted,
    v.RadixEvicted: Happenings._evicted,
    v.BlockEvicted: Happenings._evicted,
    v.BlockCopied: Happenings._block_copied,
    v.StepFinished: Happenings._step_finished,
    v.RequestFinished: Happenings._request_finished,
}
_AFTER: dict[type[v.Event], Callable[[Happenings, Any], None]] = {
    v.Keyframe: Happenings._keyframe,
    v.RequestArrived: Happenings._arrived,
    v.Admitted: Happenings._admitted,
    v.Preempted: Happenings._lost,
    v.StepScheduled: Happenings._step_scheduled,
    v.EventsMissing: Happenings._events_missing,
    v.EnginePaused: Happenings._paused,
    v.EngineResumed: Happenings._resumed,
}
