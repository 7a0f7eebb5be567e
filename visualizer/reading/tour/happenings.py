"""What happens in a log, collected from its folded events, for a tour to choose from.

Of a log with an index, only the moments that a tour may tell are folded: see `moments.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from engine.core.log import vocabulary as v
from engine.core.log.fold import State


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
    """The largest of each kind in some parts of a log: each is a state, and the events after it.

    evicted  how many blocks were evicted for room
    state    at the end
    """

    def __init__(self, parts: Iterable[tuple[State, Iterable[v.Event]]]) -> None:
        self.losses: list[Loss] = []
        self.eviction: Eviction | None = None
        self.evicted = 0
        self.hit: Hit | None = None
        self.copy: Copy | None = None
        self.faults: dict[str, Fault] = {}
        self.state = State()
        self._open: dict[int, Loss] = {}  # by victim: its last preemption
        self._evictions: dict[int, Eviction] = {}  # of the current step, by request
        self._paused_at: int | None = None
        for self.state, events in parts:
            self._scheduled = {*self.state.plans}  # steps that have not finished
            self._finished = 0
            for event in events:
                if (note := _BEFORE.get(type(event))) is not None:
                    note(self, event)
                self.state.apply(event)
                if (note := _AFTER.get(type(event))) is not None:
                    note(self, event)

    def _fault(self, kind: str) -> Fault:
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
        if event.reason in ("error", "abort"):
            ended = self.state.requests[event.request]
            fault = self._fault(event.reason)
            fault.message = fault.message or event.message
            if not fault.requests:
                fault.amount = len(ended.tokens) - ended.prompt_length
            fault.requests.append(event.request)

    # After it is applied

    def _keyframe(self, event: v.Keyframe) -> None:
        self._finished = event.state.step
        self._scheduled |= self.state.plans.keys()

    def _admitted(self, event: v.Admitted) -> None:
        state, request = self.state, event.request
        found = len(event.blocks) * state.block_size
        if event.resumed:
            if (loss := self._open.get(request)) is not None and loss.resumed is None:
                loss.resumed, loss.found = state.step, found
            return
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
        self._scheduled.add(self.state.step)
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
    v.Admitted: Happenings._admitted,
    v.Preempted: Happenings._lost,
    v.StepScheduled: Happenings._step_scheduled,
    v.EventsMissing: Happenings._events_missing,
    v.EnginePaused: Happenings._paused,
    v.EngineResumed: Happenings._resumed,
}
