"""The engine's process: steps with what they did, evictions, and counters."""

from collections.abc import Callable
from typing import Any

from engine.events.vocabulary import Preempted, RadixEvicted
from visualizer.perfetto.step import CATCH_UP, DECODE, PREFILL, Step
from visualizer.perfetto.trace import Trace

PID = 1
STEPS = PID, 1
CACHE = PID, 2
US_PER_S = 1_000_000
IDLE_US = 1000  # a pause this long between steps shows in the counters

Name = Callable[[int], str]


class EngineTracks:
    """Writes each step when it is over."""

    def __init__(self, trace: Trace, name: Name, budget: int) -> None:
        self._trace = trace
        self._name = name
        self._shown: dict[str, dict[str, int]] = {}  # counter -> its last values
        self._end: int | None = None
        self._budget = budget
        trace.process(PID, "engine")
        trace.thread(STEPS, "steps")
        trace.thread(CACHE, "prefix cache")

    def step(self, step: Step) -> None:
        """A step, its two parts, its evictions, its counters."""
        tokens = step.tokens()
        output = sum(len(gain.ids) for gain in step.gains)
        args = {
            "what": self._sentence(step),
            "tokens": tokens.total(),
            "token_budget": self._budget,
            "prefill_tokens": tokens[PREFILL],
            "catchup_tokens": tokens[CATCH_UP],
            "decode_tokens": tokens[DECODE],
            "output_tokens": output,
            "batch": len(step.plan.rows),
            "waiting": step.waiting,
        }
        self._trace.slice(STEPS, f"step {step.number}", step.start, step.end, args)
        if step.scheduled > step.start:  # a virtual clock stands still while the engine thinks
            self._trace.slice(STEPS, "schedule", step.start, step.scheduled)
        if step.plan.rows:
            self._trace.slice(STEPS, "forward pass", step.scheduled, step.end)
        for event, blocks in step.evictions:
            self.eviction(event, blocks, step.start)
        self._count(step, tokens[PREFILL], tokens[CATCH_UP] + tokens[DECODE], output)

    def eviction(self, event: RadixEvicted, blocks: int, at: int) -> None:
        """A leaf left the prefix cache."""
        args: dict[str, Any] = {"node": event.node, "blocks": blocks, "reason": event.reason}
        if event.needed_by >= 0:
            args["needed_by"] = self._name(event.needed_by)
        self._trace.instant(CACHE, "evicted", at, args)

    def _count(self, step: Step, prefill: int, others: int, output: int) -> None:
        if self._end is not None and step.start - self._end > IDLE_US:
            self._work(self._end, 0, 0, 0)
        self._end = step.end
        lasted = step.end - step.start
        self._work(step.start, prefill, others, output * US_PER_S // lasted if lasted else 0)
        if step.memory is not None:
            memory = step.memory
            blocks = {"used": memory.used, "cached": memory.cached, "free": memory.free}
            self._show("KV blocks", step.start, blocks)
            requests = {"running": step.running, "waiting": step.waiting}
            self._show("requests", step.start, requests)

    def _work(self, at: int, prefill: int, others: int, per_second: int) -> None:
        self._show("tokens per step", at, {"prefill": prefill, "decode": others})
        self._show("output tokens per second", at, {"tokens/s": per_second})

    def _show(self, counter: str, at: int, values: dict[str, int]) -> None:
        if self._shown.get(counter) != values:
            self._shown[counter] = values
            self._trace.counter(PID, counter, at, values)

    def close(self) -> None:
        """Nothing is computed behind the last step."""
        if self._end is not None:
            self._work(self._end, 0, 0, 0)

    def _sentence(self, step: Step) -> str:
        """The step in words: who computes, who was preempted, why the queue waits."""
        rows = step.tokens().total()
        parts = [
            f"{count} {kind}{'' if count == 1 else 's'}"
            for kind in (PREFILL, CATCH_UP, DECODE)
            if (count := step.kinds.count(kind))
        ]
        words = [f"{', '.join(parts) or 'nobody computes'}, {rows} of {self._budget} tokens"]
        words += [
            f"{self._name(move.request)} preempted for {self._name(move.needed_by)}"
            for move in step.moves
            if isinstance(move, Preempted)
        ]
        if (blocked := step.plan.blocked) is not None:
            behind = f", {blocked.behind} behind" if blocked.behind else ""
            words.append(f"{self._name(blocked.request)} waits: {blocked.reason}{behind}")
        return "; ".join(words)
