"""One row per step: computed tokens, requests, KV blocks and times."""

from collections.abc import Iterable, Iterator

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.simulation.facts import Fact, knowledge
from visualizer.reading.rows.times import in_ms
from visualizer.reading.rows.unknown import plus


class StepRow(msgspec.Struct, gc=False):
    """One step; `step` is its number.

    tokens (computed in the step) = prefill_tokens (rows that start inside the prompt) + catchup_tokens
    (rows that compute output again after a preemption, or the tokens of a tool) + decode_tokens (all
    others). drafted_tokens of them were drafts; accepted_tokens of those became output.
    sampled_tokens and forced_tokens became output; cached_tokens were found at admissions.
    Requests: batch (rows), running and waiting (when the step was scheduled), arrived (since the
    previous step began), admitted (including resumed ones), preempted, finished.
    KV blocks: evicted_blocks, and when the step was scheduled used_blocks (held by requests),
    cached_blocks (only in the cache) and free_blocks, which add up to all blocks.
    Times: start_ms, scheduling_ms (the decision), drafting_ms (the draft model, if there is one),
    duration_ms (the whole step).
    Ends and evictions between two steps count for the earlier step, arrivals for the later one.
    """

    step: int
    tokens: int | None = 0
    prefill_tokens: int | None = 0
    catchup_tokens: int | None = 0
    decode_tokens: int | None = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    sampled_tokens: int | None = 0
    forced_tokens: int = 0
    cached_tokens: int | None = 0
    batch: int | None = 0
    running: int | None = 0
    waiting: int | None = 0
    arrived: int | None = 0
    admitted: int | None = 0
    preempted: int | None = 0
    finished: int | None = 0
    evicted_blocks: int | None = 0
    used_blocks: int | None = 0
    cached_blocks: int | None = 0
    free_blocks: int | None = 0
    start_ms: float | None = None
    scheduling_ms: float | None = None
    drafting_ms: float | None = None
    duration_ms: float | None = None


_OPEN = 64  # steps that may still change: with pipelined or asynchronous scheduling, only a few do


def step_rows(events: Iterable[v.Event]) -> Iterator[StepRow]:
    """Yield one row per step, in order."""
    table = _Table()
    for event in events:
        table.add(event)
        if len(table.rows) > _OPEN:
            yield table.rows.pop(next(iter(table.rows)))
    yield from table.rows.values()


class _Table:
    """Rows by step, while the log is folded."""

    def __init__(self) -> None:
        self.rows: dict[int, StepRow] = {}
        self._state = State()
        self._row = StepRow(0)  # of the current step; the row before the first step is dropped
        self._arrived = 0
        self._scheduled = False

    def add(self, event: v.Event) -> None:
        """Add the next event."""
        state, row = self._state, self._row
        if isinstance(event, v.RadixEvicted | v.BlockEvicted):
            row.evicted_blocks = plus(row.evicted_blocks, len(state.evicted_blocks(event)))
        state.apply(event)
        match event:
            case v.StepStarted():
                self._row = self.rows[event.step] = StepRow(event.step, arrived=self._arrived)
                self._arrived, self._scheduled = 0, False
            case v.RequestArrived():
                self._arrived += 1
            case v.Admitted():
                row.admitted = plus(row.admitted, 1)
                row.cached_tokens = plus(row.cached_tokens, len(event.blocks) * state.block_size)
            case v.Preempted():
                row.preempted = plus(row.preempted, 1)
            case v.StepScheduled():
                self._scheduled = True
                self._describe_plan(event)
                self._describe_state()
            case v.StepReported():
                row.prefill_tokens, row.decode_tokens = event.prefill_tokens, event.decodes
                row.tokens = event.prefill_tokens + event.decodes
                row.batch = event.prefills + event.decodes
                # Only counts are known, and these counts are not among them.
                row.catchup_tokens = row.sampled_tokens = None
            case v.StepFinished():
                if not self._scheduled:  # scheduling failed, and nothing was computed
                    self._describe_state()
                _describe_outcome(self.rows.get(event.step, row), event)
            case v.RequestFinished():
                row.finished = plus(row.finished, 1)

    def _describe_plan(self, event: v.StepScheduled) -> None:
        row = self._row
        for part in event.rows:
            request = self._state.requests[part.request]
            own = part.count - len(part.drafts)
            if part.start < request.prompt_length:
                row.prefill_tokens = plus(row.prefill_tokens, part.count)
            elif own > 1 or part.start + own < len(request.tokens):
                row.catchup_tokens = plus(row.catchup_tokens, part.count)
            else:
                row.decode_tokens = plus(row.decode_tokens, part.count)
            row.tokens = plus(row.tokens, part.count)
            row.drafted_tokens += len(part.drafts)
        row.batch = len(event.rows)

    def _describe_state(self) -> None:
        row, state = self._row, self._state
        row.running, row.waiting = len(state.running), len(state.waiting)
        if state.reported:
            row.waiting = state.reported.waiting
        tables = [state.requests[request].held_blocks for request in state.running]
        used, free = len(set[int]().union(*tables)), len(state.free)
        row.used_blocks, row.free_blocks = used, free
        row.cached_blocks = len(state.refs) - used - free
        if all(knowledge(state.source, fact) == "unknown" for fact in _USE):
            row.cached_blocks = len(state.node_of)  # the others may be free or in use


_USE: tuple[Fact, ...] = ("block_tables", "free_blocks")


def _describe_outcome(row: StepRow, event: v.StepFinished) -> None:
    for gain in event.tokens:
        row.forced_tokens += gain.forced
        row.sampled_tokens = plus(row.sampled_tokens, len(gain.ids) - gain.forced)
        row.accepted_tokens += gain.accepted
    if {"start", "scheduled", "end"} <= event.t.keys():
        start = event.t["start"]
        row.start_ms = in_ms(start)
        row.scheduling_ms = in_ms(event.t["scheduled"] - start)
        if "draft_us" in event.t:
            row.drafting_ms = in_ms(event.t["draft_us"])
        row.duration_ms = in_ms(event.t["end"] - start)
