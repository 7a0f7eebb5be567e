"""One row per step: computed tokens, requests, KV blocks and times."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from engine.events import vocabulary as v
from engine.events.fold import State
from engine.events.frames.columns import COUNT, MS, US_PER_MS, build, in_ms
from engine.events.state import RequestState

if TYPE_CHECKING:
    from engine.events.log import EventLog

TYPES = {
    "tokens": COUNT,
    "prefill_tokens": COUNT,
    "catchup_tokens": COUNT,
    "decode_tokens": COUNT,
    "drafted_tokens": COUNT,
    "accepted_tokens": COUNT,
    "sampled_tokens": COUNT,
    "forced_tokens": COUNT,
    "cached_tokens": COUNT,
    "batch": COUNT,
    "running": COUNT,
    "waiting": COUNT,
    "arrived": COUNT,
    "admitted": COUNT,
    "preempted": COUNT,
    "finished": COUNT,
    "evicted_blocks": COUNT,
    "used_blocks": COUNT,
    "cached_blocks": COUNT,
    "free_blocks": COUNT,
    "start_ms": MS,
    "scheduling_ms": MS,
    "duration_ms": MS,
}
_NOTHING: dict[str, Any] = {name: None if kind == MS else 0 for name, kind in TYPES.items()}


def steps_frame(log: "EventLog") -> pd.DataFrame:
    """One row per step, indexed by step number.

    tokens (computed in the step) = prefill_tokens (rows that start inside the prompt) + catchup_tokens
    (rows that compute output again after a preemption, or the tokens of a tool) + decode_tokens (all
    others). drafted_tokens of them were drafts; accepted_tokens of those became output.
    sampled_tokens and forced_tokens became output; cached_tokens were found at admissions.
    Requests: batch (rows), running and waiting (when the step was scheduled), arrived (since the
    previous step began), admitted (including resumed ones), preempted, finished.
    KV blocks: evicted_blocks, and when the step was scheduled used_blocks (held by requests),
    cached_blocks (only in the cache) and free_blocks, which add up to all blocks.
    Times: start_ms, scheduling_ms (the decision), duration_ms (the whole step).
    Ends and evictions between two steps count for the earlier step, arrivals for the later one.
    """
    table = _Table()
    for event in log:
        table.add(event)
    return table.frame()


class _Table:
    """Rows by step, while the log is folded."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, Any]] = {}
        self._state = State()
        self._row = dict(_NOTHING)  # of the current step; the row before the first step is dropped
        self._arrived = 0
        self._scheduled = False

    def add(self, event: v.Event) -> None:
        """Add the next event."""
        state, row = self._state, self._row
        if isinstance(event, v.RadixEvicted | v.BlockEvicted):
            row["evicted_blocks"] += len(state.evicted_blocks(event))
        state.apply(event)
        match event:
            case v.StepStarted():
                self._row = self._rows[event.step] = _NOTHING | {"arrived": self._arrived}
                self._arrived, self._scheduled = 0, False
            case v.RequestArrived():
                self._arrived += 1
            case v.Admitted():
                row["admitted"] += 1
                row["cached_tokens"] += len(event.blocks) * state.block_size
            case v.Preempted():
                row["preempted"] += 1
            case v.StepScheduled():
                self._scheduled = True
                self._describe_plan(event)
                self._describe_state()
            case v.StepFinished():
                if not self._scheduled:  # scheduling failed, and nothing was computed
                    self._describe_state()
                _describe_outcome(row, event)
            case v.RequestFinished():
                row["finished"] += 1

    def _describe_plan(self, event: v.StepScheduled) -> None:
        row = self._row
        for part in event.rows:
            row[_kind(part, self._state.requests[part.request])] += part.count
            row["tokens"] += part.count
            row["drafted_tokens"] += len(part.drafts)
        row["batch"] = len(event.rows)

    def _describe_state(self) -> None:
        row, state = self._row, self._state
        row["running"], row["waiting"] = len(state.running), len(state.waiting)
        tables = [state.requests[request].table for request in state.running]
        row["used_blocks"] = len(set[int]().union(*tables))
        row["free_blocks"] = len(state.free)
        row["cached_blocks"] = len(state.refs) - row["used_blocks"] - row["free_blocks"]

    def frame(self) -> pd.DataFrame:
        """Return a frame of all events so far."""
        index = pd.Index(list(self._rows), name="step", dtype="int64")
        rows = self._rows.values()
        return build({name: [row[name] for row in rows] for name in TYPES}, TYPES, index)


def _kind(part: v.ScheduledRow, request: RequestState) -> str:
    if part.start < request.prompt_length:
        return "prefill_tokens"
    own = part.count - len(part.drafts)
    return (
        "catchup_tokens" if own > 1 or part.start + own < len(request.tokens) else "decode_tokens"
    )


def _describe_outcome(row: dict[str, Any], event: v.StepFinished) -> None:
    for gain in event.tokens:
        row["forced_tokens"] += gain.forced
        row["sampled_tokens"] += len(gain.ids) - gain.forced
        row["accepted_tokens"] += gain.accepted
    row["start_ms"] = in_ms(event.t, "start")
    if row["start_ms"] is not None:
        row["scheduling_ms"] = (event.t["scheduled"] - event.t["start"]) / US_PER_MS
        row["duration_ms"] = (event.t["end"] - event.t["start"]) / US_PER_MS
