"""How often the reasons inferred from a foreign-style log equal the recorded ones.

Logs of this engine lose what a foreign log lacks: why the head of the queue waits, why running requests
got no tokens, which request needed the blocks of a preempted one. `visualizer.reading.why.inference`
infers them again, and a decision counts as equal only if request, reason, need and have are. The
policies "lpm" and "fair" are left out: the order of their queue cannot be read off a foreign log.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine import Cost, EngineConfig, EventLog, Workload, simulate
from engine.core.log import vocabulary as v
from engine.simulation.workload import Arrival, lognormal, poisson, uniform
from visualizer.reading.why.inference import UNKNOWN, infer_reasons

_TIGHT = dict(max_kv_tokens=320, block_size=8)
SETTINGS: dict[str, dict[str, Any]] = {
    "vllm": dict(max_kv_tokens=640),
    "tight memory": _TIGHT,
    "tight, priority": _TIGHT | dict(policy="priority"),
    "shortest job first": dict(policy="sjf", max_batch_size=4),
    "first chunk fits": _TIGHT | dict(admission="first_chunk", prefix_cache="radix"),
    "static batches": dict(batching="static"),
    "chunked prefill off": dict(chunked_prefill=False, token_budget=160),
    "asynchronous": _TIGHT | dict(async_scheduling=True),
    "preemption off": _TIGHT | dict(preemption=False),
    "no prefix cache": _TIGHT | dict(prefix_cache="off"),
}


@dataclass
class Confusion:
    """Decisions by (kind, recorded reason, inferred reason), and how many of them are equal."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    equal: int = 0

    @property
    def total(self) -> int:
        """The number of decisions that have a reason, recorded or inferred."""
        return self.counts.total()

    def add(self, recorded: EventLog, inferred: EventLog) -> None:
        """Count the decisions of a log."""
        for one, other in zip(recorded, inferred, strict=True):
            for kind, said, found in _decisions(one, other):
                if said is None and found is None:
                    continue
                self.counts[kind, _reason(said), _reason(found)] += 1
                self.equal += said == found

    def __str__(self) -> str:
        lines = [f"{'decision':18} {'recorded':18} {'inferred':18} {'count':>6}"]
        for (kind, said, found), count in sorted(self.counts.items()):
            lines.append(f"{kind:18} {said:18} {found:18} {count:6}")
        share = 100 * self.equal / self.total
        return "\n".join([*lines, f"{self.equal} of {self.total} equal: {share:.1f} %"])


def stripped(log: EventLog) -> EventLog:
    """Return a log without the reasons that a foreign log lacks."""
    return EventLog.from_events([_without_reasons(event) for event in log])


def measure() -> dict[str, Confusion]:
    """Return the confusion by settings."""
    found = {}
    for name, settings in SETTINGS.items():
        config = EngineConfig.like("vllm", **settings)
        log = simulate(_workload(), config, cost=Cost(1, 0.01, 0.02, 0.00002, 1e-6))
        found[name] = Confusion()
        found[name].add(log, infer_reasons(stripped(log)))
    return found


def report(found: dict[str, Confusion]) -> str:
    """Return the share of equal decisions by settings, and the confusion table of all of them."""
    whole, lines = Confusion(), []
    for name, confusion in found.items():
        whole.counts += confusion.counts
        whole.equal += confusion.equal
        lines.append(f"{name:20} {confusion.equal:5} of {confusion.total:5} equal")
    return "\n".join([*lines, "", str(whole)])


def _workload() -> Workload:
    workload = Workload.generate(
        80,
        arrivals=poisson(300),
        prompt=lognormal(30, 0.6, 100),
        output=uniform(4, 40),
        groups=6,
        shared_tokens=30,
        seed=3,
    )
    for index, arrival in enumerate(workload.inputs):
        assert isinstance(arrival, Arrival)
        arrival.priority = index % 3
    return workload


def _without_reasons(event: v.Event) -> v.Event:
    match event:
        case v.StepScheduled():
            return msgspec.structs.replace(event, blocked=None, skipped=[])
        case v.Preempted():
            return msgspec.structs.replace(event, needed_by=UNKNOWN)
    return event


def _decisions(one: v.Event, other: v.Event) -> Iterator[tuple[str, Any, Any]]:
    """Yield each decision as kind, what is recorded, and what is inferred."""
    match one, other:
        case v.StepScheduled(), v.StepScheduled():
            yield "the head waits", one.blocked, other.blocked
            said, found = dict(one.skipped), dict(other.skipped)
            for request in said | found:
                yield "gets no tokens", said.get(request), found.get(request)
        case v.Preempted(), v.Preempted():
            yield "needs the blocks", one.needed_by, other.needed_by


def _reason(decision: v.Blocked | str | int | None) -> str:
    match decision:
        case None:
            return "none"
        case v.Blocked():
            return decision.reason
        case int():
            return "unknown" if decision == UNKNOWN else "a request"
    return decision
