"""Infer the reasons of a log that has decisions without reasons, as a foreign engine writes it.

A scheduler of this kind decides from a few numbers, and the folded state has them all: the budget, the
seats, the free and evictable blocks, the queue, and the head's prompt and cached length. So the checks
of `scheduling/scheduler.py` are repeated on the state, in their order, and the first one that fails is
the reason. Three things are inferred:

- why the head of the queue waits, with what it needs and has: `step_scheduled.blocked`;
- why running requests got no tokens: `step_scheduled.skipped`;
- which request needed the blocks of a preempted one: `preempted.needed_by`.

If no check fails, nothing is inferred, because the engine that wrote the log had a reason that this
module does not know. `tests/engine/inferred_reasons.py` measures how often the inferred reasons equal
recorded ones.

Differs from vLLM: nothing here knows about encoder inputs, LoRA adapters or remote KV, which can keep a
request waiting there.
"""

from collections.abc import Callable, Iterator

import msgspec

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import RequestState
from visualizer.reading.why.batch import Batch
from visualizer.reading.why.obstacles import StepLimits, lacks_blocks, obstacle
from visualizer.reading.why.scoring import Unscored

UNKNOWN = -1  # `preempted.needed_by` of a log that does not say

# The order of the queue, for the policies whose keys can be read off a request, by name or class. Ties
# keep the queue's order. With another policy, the head is known only if no other request waits.
_KEYS: dict[str, Callable[[RequestState], tuple[int, ...]]] = {
    "fcfs": lambda _request: (),
    "priority": lambda request: (request.priority, request.id),
    "sjf": lambda request: (request.prompt_length + request.max_tokens,),
    "shortestjobfirst": lambda request: (request.prompt_length + request.max_tokens,),
}


def infer_reasons(log: EventLog) -> EventLog:
    """Return the log with the reasons that it lacks, as far as they can be inferred."""
    inference = ReasonInference()
    return EventLog.from_events([inference.note(event) for event in log])


class ReasonInference:
    """Infers reasons while a log is read. Feed it every event, in order."""

    def __init__(self) -> None:
        self._state = State()
        self._unscored = Unscored()
        self._batch = Batch()
        self._lacking: int | None = None  # the request that lacks blocks, before a withdrawal
        # In this step:
        self._admitted: set[int] = set()
        self._has_preempted = False
        self._unexamined: set[int] = set()  # the requests behind one that preempted itself

    def note(self, event: v.Event) -> v.Event:
        """Return the event, with the inferred reasons if it lacks some.

        Raises KeyError, IndexError or ValueError for an event that does not fit the earlier ones.
        """
        match event:
            case v.StepStarted():
                self._admitted, self._unexamined, self._lacking = set(), set(), None
                self._has_preempted = False
            case v.BlockWithdrawn() if self._lacking is None:
                self._lacking = self._needed_by()  # before the victim's blocks change
            case v.Preempted():
                if event.needed_by == UNKNOWN:
                    by = self._needed_by() if self._lacking is None else self._lacking
                    event = msgspec.structs.replace(event, needed_by=by)
                self._lacking, self._has_preempted = None, True
                if event.needed_by == event.request:
                    running = self._state.running
                    self._unexamined = set(running[running.index(event.request) :])
            case v.Admitted():
                self._admitted.add(event.request)
            case v.StepScheduled():
                skipped = event.skipped or self._skipped(event)
                blocked = event.blocked or self._blocked(event)
                event = msgspec.structs.replace(event, skipped=skipped, blocked=blocked)
        self._unscored.note(event, self._state)
        self._state.apply(event)
        if isinstance(event, v.StepStarted | v.Keyframe):
            self._batch.note(self._state, self._in_order())
        return event

    def _in_order(self) -> Iterator[RequestState]:
        """Yield the waiting requests in the policy's order; none if it is not known."""
        state = self._state
        policy = state.classes.get("policy") or state.settings.get("policy", "")
        key = _KEYS.get(policy.lower())
        waiting = (state.requests[request] for request in state.waiting)
        if key is None:
            is_static = state.settings.get("batching") == "static"
            return waiting if len(state.waiting) == 1 and not is_static else iter(())
        return iter(sorted(waiting, key=key)) if policy.lower() != "fcfs" else waiting

    def _blocked(self, event: v.StepScheduled) -> v.Blocked | None:
        """Return why the head of the queue was not admitted."""
        deferred = {request for request, reason in event.skipped if reason == "policy"}
        head = next((one for one in self._in_order() if one.id not in deferred), None)
        if head is None:
            return None
        if self._has_preempted:
            found: tuple[v.WaitingReason, int, int] | None = ("after_preemption", 0, 0)
        elif self._batch.is_static and head.root not in self._batch.roots:
            found = "static_batch", 0, 0
        else:
            limits = StepLimits.of(self._state, event.rows)
            found = obstacle(self._state, limits, head, unscored=head.id in self._unscored)
        behind = len(self._state.waiting) - len(deferred) - 1
        return None if found is None else v.Blocked(head.id, found[0], behind, *found[1:])

    def _skipped(self, event: v.StepScheduled) -> list[tuple[int, str]]:
        """Return why running requests got no tokens.

        Running requests are examined in order until the budget is empty. So one before the last
        scheduled one had nothing to compute.
        """
        state = self._state
        rows = [row for row in event.rows if row.request not in self._admitted]
        left = StepLimits.of(state, rows).tokens
        scheduled = {row.request for row in rows}
        examined = [one for one in state.running if one not in self._admitted]
        last = max((at for at, one in enumerate(examined) if one in scheduled), default=-1)
        end: str | None = "awaits_token" if state.settings.get("async_scheduling") else None
        if left is not None and left <= 0:
            end = "token_budget"
        skipped: list[tuple[int, str]] = []
        for at, one in enumerate(examined):
            reason = "awaits_token" if at < last else end
            reason = "after_preemption" if one in self._unexamined else reason
            if one not in scheduled and reason:
                skipped.append((one, reason))
        return skipped

    def _needed_by(self) -> int:
        """Return the running request whose next tokens do not fit into memory; -1 if all fit."""
        return lacks_blocks(self._state) or UNKNOWN
