"""Collect the events of one step, because its times are known only when it ends."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from engine.core.log import vocabulary as v
from engine.core.log.fold import State

PREFILL, CATCH_UP, DECODE = "prefill", "catch-up", "decode"


@dataclass(slots=True)
class Step:
    """The events of a step, in order. Times are in microseconds."""

    number: int
    start: int = 0
    scheduled: int = 0
    end: int = 0
    # With asynchronous scheduling: when the step was scheduled. `start` to `end` is its forward pass.
    scheduling: tuple[int, int] | None = None
    wasted: set[int] = field(default_factory=set)  # requests whose row was in vain
    transitions: list[v.Admitted | v.Preempted] = field(default_factory=list)
    # Preempted request -> tokens it had computed.
    lost: dict[int, int] = field(default_factory=dict)
    # Each eviction with its number of blocks.
    evictions: list[tuple[v.RadixEvicted | v.BlockEvicted, int]] = field(default_factory=list)
    plan: v.StepScheduled = field(default_factory=lambda: v.StepScheduled([], []))
    kinds: list[str] = field(default_factory=list)  # one for each row of the plan
    requests: dict[str, int] = field(default_factory=dict)  # how many requests run and wait
    deferred: list[int] = field(default_factory=list)  # waiting requests deferred by the policy
    blocks: dict[str, int] = field(
        default_factory=dict
    )  # how many KV blocks are used, cached, free
    forks: list[v.Forked] = field(default_factory=list)
    # Requests that ended within the step.
    ended: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    outputs: list[v.TokenRow] = field(default_factory=list)

    @property
    def middle(self) -> int:
        """The time within the step at which arrows start and end."""
        return (self.start + self.end) // 2

    def schedule(self, plan: v.StepScheduled, state: State) -> None:
        """Store the plan. `state` is the state after scheduling."""
        self.plan = plan
        self.kinds = [_kind(row, state) for row in plan.rows]
        self.requests = {"running": len(state.running), "waiting": len(state.waiting)}
        self.deferred = [request for request, _ in plan.skipped if request in state.waiting]
        tables = (state.requests[request].held_blocks for request in state.running)
        used, free = len(set[int]().union(*tables)), len(state.free)
        self.blocks = {"used": used, "cached": len(state.refs) - used - free, "free": free}

    def finish(self, event: v.StepFinished, index: int, has_times: bool) -> None:
        """Store outputs and times. If the log has no times, use millisecond number `index`."""
        self.outputs = event.tokens
        self.wasted = set(event.wasted)
        if has_times and "launched" in event.t:
            self.scheduling = event.t["start"], event.t["scheduled"]
            self.start = self.scheduled = event.t["launched"]
            self.end = event.t["ready"]
        elif has_times:
            self.start, self.end = event.t["start"], event.t["end"]
            self.scheduled = event.t["scheduled"]
        else:
            self.start = self.scheduled = 1000 * index
            self.end = self.start + 1000

    def tokens(self) -> Counter[str]:
        """Return the number of tokens in each kind of row."""
        counts = Counter({PREFILL: 0, CATCH_UP: 0, DECODE: 0})
        for row, kind in zip(self.plan.rows, self.kinds, strict=True):
            counts[kind] += row.count
        return counts


def _kind(row: v.ScheduledRow, state: State) -> str:
    request = state.requests[row.request]
    if row.start < request.prompt_length:
        return PREFILL
    own = row.count - len(row.drafts)
    return CATCH_UP if own > 1 or row.start + own < len(request.tokens) else DECODE
