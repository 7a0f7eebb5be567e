"""One step, gathered from its events: its times are known only when it is over."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from engine.events.fold import State
from engine.events.vocabulary import (
    Admitted,
    Forked,
    Preempted,
    RadixEvicted,
    ScheduledRow,
    StepFinished,
    StepScheduled,
    TokenRow,
)

PREFILL, CATCH_UP, DECODE = "prefill", "catch-up", "decode"


@dataclass(slots=True)
class Memory:
    """KV blocks: requests hold the used ones, the prefix tree alone the cached ones."""

    used: int
    cached: int
    free: int

    @classmethod
    def of(cls, state: State) -> "Memory":
        """As it is now."""
        tables = (state.requests[request].table for request in state.running)
        used, free = len(set[int]().union(*tables)), len(state.free)
        return cls(used, len(state.refs) - used - free, free)


@dataclass(slots=True)
class Step:
    """What happened in a step, in the order of its events; times in microseconds."""

    number: int
    start: int = 0
    scheduled: int = 0
    end: int = 0
    moves: list[Admitted | Preempted] = field(default_factory=list)
    lost: dict[int, int] = field(default_factory=dict)  # preempted -> tokens it had computed
    evictions: list[tuple[RadixEvicted, int]] = field(default_factory=list)  # and how many blocks
    plan: StepScheduled = field(default_factory=lambda: StepScheduled([], []))
    kinds: list[str] = field(default_factory=list)  # of the plan's rows
    running: int = 0
    waiting: int = 0
    put_off: list[int] = field(default_factory=list)  # waiting requests that the policy put off
    memory: Memory | None = None
    forks: list[Forked] = field(default_factory=list)
    ended: list[tuple[int, dict[str, Any]]] = field(default_factory=list)  # the forward pass failed
    gains: list[TokenRow] = field(default_factory=list)

    @property
    def middle(self) -> int:
        """A time within the step, where arrows begin and end."""
        return (self.start + self.end) // 2

    def schedule(self, plan: StepScheduled, state: State) -> None:
        """Scheduling is over; `state` has the plan."""
        self.plan = plan
        self.kinds = [_kind(row, state) for row in plan.rows]
        self.running, self.waiting = len(state.running), len(state.waiting)
        self.put_off = [request for request, _ in plan.skipped if request in state.waiting]
        self.memory = Memory.of(state)

    def finish(self, event: StepFinished, index: int, has_times: bool) -> None:
        """The step is over. In a log without times the `index`-th one takes its millisecond."""
        self.gains = event.tokens
        if has_times:
            self.start, self.end = event.t["start"], event.t["end"]
            self.scheduled = event.t["scheduled"]
        else:
            self.start = self.scheduled = 1000 * index
            self.end = self.start + 1000

    def tokens(self) -> Counter[str]:
        """Tokens by the kind of their row."""
        counts = Counter({PREFILL: 0, CATCH_UP: 0, DECODE: 0})
        for row, kind in zip(self.plan.rows, self.kinds, strict=True):
            counts[kind] += row.count
        return counts


def _kind(row: ScheduledRow, state: State) -> str:
    request = state.requests[row.request]
    if row.start < request.prompt_length:
        return PREFILL
    own = row.count - len(row.drafts)
    return CATCH_UP if own > 1 or row.start + own < len(request.tokens) else DECODE
