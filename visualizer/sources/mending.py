"""Go on with this project's own log after a line that cannot be read.

Later events may need what the line said. They are folded, and where one contradicts the state:

- A step that no line begins is begun. One that no line ends is ended: what it sampled are tokens
  without an id, because the later ones have their places behind them.
- A request that holds a block which is allocated again has ended before.
- Any other request that an event contradicts ends there, as an error that says so, and what later lines
  say about it is left out.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from engine.core.log import Event, State
from engine.core.log import vocabulary as v

CONTRADICTS = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError)
_KEPT = 256  # events from the last copy of the state: the most to fold again after a contradiction
_MOST_STEPS = 1000  # a damaged number of a step could use up the memory
# What follows a step's end.
_ENDED = (v.StepStarted, v.RadixJoined, v.RadixInserted, v.RadixExtended, v.Forked)
_MESSAGE = "an earlier line cannot be read, so what the later ones say about it is left out"


class Mending:
    """Makes the events after a gap fit the state.

    state         the one before the gap
    is_scheduled  whether its step was scheduled, so that what is scheduled next is another one
    """

    def __init__(self, state: State, *, is_scheduled: bool) -> None:
        self.state, self._is_scheduled = state, is_scheduled
        self._told: set[int] = set()  # requests of which the log says that they are left out
        self._at = 0  # the end of the last step
        self._copy()

    def gap(self, why: str) -> list[Event]:
        """Return the event that says what is missing."""
        return self._tried(v.EventsMissing(1, why, {"at": self._at}))

    def take(self, event: Event) -> list[Event]:
        """Return what the log says with the next event: often this event alone, or nothing."""
        known = self._known(event)
        if known is None:
            return self._left_out(getattr(event, "request", 0))
        event = known
        events = [one for before in self._needed(event) for one in self._tried(before)]
        if added := self._tried(event):
            return events + added
        lost = self._requests_of(event) & self.state.requests.keys()
        return events + [one for request in sorted(lost) for one in self._end(request)]

    def _known(self, event: Any) -> Any:
        """Return the event without requests that are lost; None if nothing is left of it."""
        requests = self.state.requests
        match event:
            case v.Keyframe() | v.RunStarted():
                return None
            case v.RequestArrived():
                return None if event.request in requests else event
            case v.StepScheduled():
                running = set(self.state.running)
                blocked = event.blocked
                event = msgspec.structs.replace(
                    event,
                    rows=[row for row in event.rows if row.request in running],
                    skipped=[one for one in event.skipped if one[0] in requests],
                    blocked=blocked if blocked and blocked.request in requests else None,
                )
            case v.StepFinished():
                kept = [one for one in event.tokens if one.request in requests]
                if len(kept) < len(event.tokens):  # measured values are by row
                    event = msgspec.structs.replace(
                        event, tokens=kept, t={k: event.t[k] for k in event.t if k in _TIMES}
                    )
                self._at = event.t.get("end", self._at)
            case v.Forked():
                return event if event.parent in requests else None
            case _ if (request := getattr(event, "request", 0)) and request not in requests:
                return None
        return event

    def _needed(self, event: Event) -> Iterator[Event]:
        """Yield what must have happened before an event."""
        state = self.state
        begun = event.step if isinstance(event, v.StepStarted) else state.step
        is_async = state.settings.get("async_scheduling", False)
        is_end = isinstance(event, v.RequestFinished) and event.reason in ("stop", "length")
        if is_end or isinstance(event, _ENDED):
            before = -1 if is_async else begun
            yield from map(self._ended, [one for one in state.plans if one <= before])
        elif isinstance(event, v.StepFinished):
            yield from map(self._ended, [one for one in state.plans if one < event.step])
        match event:
            case v.StepStarted(step=step) if step - state.step <= _MOST_STEPS:
                yield from map(v.StepStarted, range(state.step + 1, step))
            case v.StepScheduled() if self._is_scheduled:
                yield v.StepStarted(state.step + 1)
            case v.BlocksAllocated(blocks=blocks):
                yield from self._freed(set(blocks))
            case v.BlockCopied(block=block):
                yield from self._freed({block})

    def _ended(self, step: int) -> Event:
        """Return the end of a step: a token without an id for each request that it sampled one for."""
        requests, t = self.state.requests, dict.fromkeys(_TIMES, self._at)
        sampled = [
            row.request
            for row in self.state.plans[step]
            if row.request in requests
            and row.start + row.count - len(row.drafts) >= len(requests[row.request].tokens)
        ]
        return v.StepFinished([v.TokenRow(one, [-1], [""], 0) for one in sampled], step, t=t)

    def _freed(self, blocks: set[int]) -> Iterator[Event]:
        """Yield the ends of requests that hold blocks, and the evictions of those that are cached."""
        state = self.state
        if blocks <= state.free.keys():
            return
        for request, held in list(state.requests.items()):
            if not blocks.isdisjoint(held.block_table):
                yield self._finish(request)
        if state.is_hashed:
            for block in blocks & state.queue.keys():
                yield v.BlockEvicted(state.node_of[block], block, -1, "room")
            return
        holding = [node for node in state.nodes.values() if not blocks.isdisjoint(node.blocks)]
        for node in holding:
            below = [node.id]
            for one in below:
                below += state.nodes[one].children
            yield from (
                v.RadixEvicted(one, -1, "room") for one in reversed(below) if one in state.nodes
            )

    def _end(self, request: int) -> list[Event]:
        return self._tried(self._finish(request)) if request in self.state.requests else []

    def _finish(self, request: int) -> Event:
        self._told.add(request)
        return v.RequestFinished(request, "error", _MESSAGE)

    def _left_out(self, request: int) -> list[Event]:
        """Say once of a request that no line that can be read has its arrival."""
        if request <= 0 or request in self._told or request in self.state.requests:
            return []
        self._told.add(request)
        why = f"request {request} is left out: the line with its arrival cannot be read"
        return self._tried(v.EventsMissing(0, why, {"at": self._at}))

    def _requests_of(self, event: Any) -> set[int]:
        if isinstance(event, v.StepScheduled):
            return {row.request for row in event.rows}
        if isinstance(event, v.StepFinished):
            return {one.request for one in event.tokens}
        return {getattr(event, name, 0) for name in ("request", "parent")}

    def _tried(self, event: Event) -> list[Event]:
        """Fold an event and return it; none if it contradicts the state, which then stays as it was."""
        try:
            if isinstance(event, v.Admitted):
                self._check(event)
            self.state.apply(event)
        except CONTRADICTS:
            self.state = State()
            for one in (self._keyframe, *self._folded):
                self.state.apply(one)
            return []
        self._folded.append(event)
        if isinstance(event, v.StepStarted | v.StepScheduled):
            self._is_scheduled = isinstance(event, v.StepScheduled)
        if len(self._folded) > _KEPT:
            self._copy()
        return [event]

    def _check(self, event: v.Admitted) -> None:
        """Raise KeyError if a prefix is not cached. The fold relies on that."""
        state = self.state
        state.nodes[event.node]
        for block in event.blocks:
            if block in state.free:
                raise KeyError(block)

    def _copy(self) -> None:
        self._keyframe = self.state.keyframe()
        self._folded: list[Event] = []


_TIMES = ("start", "scheduled", "launched", "ready", "end")
