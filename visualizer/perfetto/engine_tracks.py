"""The engine's process in the trace: steps, evictions and counters."""

from collections.abc import Callable
from typing import Any

from engine.core.log import vocabulary as v
from visualizer.perfetto.step import CATCH_UP, DECODE, PREFILL, Step
from visualizer.perfetto.trace import Trace

PID = 1
STEPS = PID, 1
CACHE = PID, 2
SCHEDULER = PID, 3
US_PER_S = 1_000_000
IDLE_US = 1000  # after a longer pause between steps, the counters drop to 0


class EngineTracks:
    """Writes each step to the trace once it has finished."""

    def __init__(self, trace: Trace, name_of: Callable[[int], str], budget: int) -> None:
        self._trace = trace
        self._name_of = name_of
        self._last_values: dict[str, dict[str, int]] = {}  # by counter
        self._end: int | None = None
        self._schedulers_end = -1
        self._budget = budget
        trace.process(PID, "engine")
        trace.thread(STEPS, "steps")
        trace.thread(CACHE, "prefix cache")

    def step(self, step: Step) -> None:
        """Write a step with its two phases, its evictions and its counters."""
        tokens = step.tokens()
        output = sum(len(row.ids) for row in step.outputs)
        args = {
            "what": self._summary(step),
            "tokens": tokens.total(),
            "token_budget": self._budget,
            "prefill_tokens": tokens[PREFILL],
            "catchup_tokens": tokens[CATCH_UP],
            "decode_tokens": tokens[DECODE],
            "output_tokens": output,
            "batch": len(step.plan.rows),
            "waiting": step.requests.get("waiting", 0),
        }
        self._trace.slice(STEPS, f"step {step.number}", step.start, step.end, args)
        if step.scheduling is not None:
            if self._schedulers_end < 0:
                self._trace.thread(SCHEDULER, "scheduler, one step ahead")
            # Steps without a forward pass are left out.
            begin, end = step.scheduling
            self._trace.slice(SCHEDULER, f"schedule {step.number}", begin, end)
            self._schedulers_end = end
        if step.scheduled > step.start:  # on a virtual clock, scheduling takes no time
            self._trace.slice(STEPS, "schedule", step.start, step.scheduled)
        if step.plan.rows:
            self._trace.slice(STEPS, "forward pass", step.scheduled, step.end)
        for event, blocks in step.evictions:
            self.eviction(event, blocks, step.start)
        self._count(step, tokens[PREFILL], tokens[CATCH_UP] + tokens[DECODE], output)

    def eviction(self, event: v.RadixEvicted | v.BlockEvicted, blocks: int, at: int) -> None:
        """Write an eviction from the prefix cache."""
        args: dict[str, Any] = {"node": event.node, "blocks": blocks, "reason": event.reason}
        if event.needed_by >= 0:
            args["needed_by"] = self._name_of(event.needed_by)
        self._trace.instant(CACHE, "evicted", at, args)

    def _count(self, step: Step, prefill: int, others: int, output: int) -> None:
        if self._end is not None and step.start - self._end > IDLE_US:
            self._count_tokens(self._end, 0, 0, 0)
        self._end = step.end
        lasted = step.end - step.start
        per_second = output * US_PER_S // lasted if lasted else 0
        self._count_tokens(step.start, prefill, others, per_second)
        if step.blocks:
            self._set_counter("KV blocks", step.start, step.blocks)
            self._set_counter("requests", step.start, step.requests)

    def _count_tokens(self, at: int, prefill: int, others: int, per_second: int) -> None:
        self._set_counter("tokens per step", at, {"prefill": prefill, "decode": others})
        self._set_counter("output tokens per second", at, {"tokens/s": per_second})

    def _set_counter(self, counter: str, at: int, values: dict[str, int]) -> None:
        if self._last_values.get(counter) != values:
            self._last_values[counter] = values
            self._trace.counter(PID, counter, at, values)

    def close(self) -> None:
        """Set the token counters to 0 after the last step."""
        if self._end is not None:
            self._count_tokens(self._end, 0, 0, 0)

    def _summary(self, step: Step) -> str:
        """Describe the step in words: its rows, its preemptions and why the queue waits."""
        parts = [
            f"{count} {kind}{'' if count == 1 else 's'}"
            for kind in (PREFILL, CATCH_UP, DECODE)
            if (count := step.kinds.count(kind))
        ]
        tokens = f"{step.tokens().total()} of {self._budget} tokens"
        words = [f"{', '.join(parts) or 'no requests'}, {tokens}"]
        words += [
            f"{self._name_of(event.request)} preempted"
            + (f" for {self._name_of(event.needed_by)}" if event.needed_by >= 0 else "")
            for event in step.transitions
            if isinstance(event, v.Preempted)
        ]
        if (blocked := step.plan.blocked) is not None:
            behind = f", {blocked.behind} behind" if blocked.behind else ""
            words.append(f"{self._name_of(blocked.request)} waits: {blocked.reason}{behind}")
        return "; ".join(words)
