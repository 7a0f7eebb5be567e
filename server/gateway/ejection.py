"""When does the gateway eject a replica that is present, and when does the replica return?

A replica is ejected for one of three reasons:

    silent   its feed has sent nothing for `Deadlines.silent`, although it was asked for a sign of
             life every `Deadlines.beat`: its process or machine has stopped, or its event loop hangs
    stuck    requests run on its engine, but its step does not end: it takes several times what the
             tokens of steps have cost lately
    failing  several requests failed there, and no token was generated in between

An ejected replica gets no requests, and those that it has are continued elsewhere. After a third of the
silence already, new requests prefer other replicas. When an ejected replica has been well for a while,
it returns half-open: it gets one request, and more after the first step that generates a token. Each
ejection that follows soon after a return doubles that while.

The last ready replica is never ejected. Time is counted in the gateway's own beats: if the gateway
itself was stopped or starved, it counts none, so it does not conclude that all replicas were silent.

Source: Envoy's outlier detection ejects after consecutive errors, for a time that grows with each
ejection, and never all hosts. Circuit breakers (Nygard, Release It!) are half-open in the same way.
Differs from Envoy, which judges requests alone: an engine's log also shows that no step ends.
"""

from collections import deque
from dataclasses import dataclass

from engine.cluster.events import Noticed
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from server.gateway.failures import Deadlines

_FAILURES = 3  # without a token in between
_SLOWER = 8  # a step may take so many times the time that it should take
_STEPS = 64  # recent steps that say how long a step takes
_FIRST_PAUSE, _LAST_PAUSE = 2, 120  # beats for which an ejected replica must be well


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a replica should be ejected."""

    why: str
    noticed: Noticed


class Health:
    """What the gateway knows about one replica; `beat` is called at each beat of the gateway.

    half_open  whether the replica has returned and has not generated a token since
    ejection   why it is ejected, or None
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.half_open = False
        self.ejection: Fault | None = None
        self._silent = self._stalled = 0  # beats since its last sign of life, and its last event
        self._failures = 0  # since its last token
        self._tokens = 0  # of the step that was scheduled last
        self._steps = deque[tuple[float, int]](maxlen=_STEPS)  # seconds and tokens of each
        self._pause = _FIRST_PAUSE
        self._well = _LAST_PAUSE  # beats since the last problem or return

    @property
    def silence(self) -> float:
        """For how many seconds the replica has been silent."""
        return self._silent * self._deadlines.beat

    @property
    def is_doubtful(self) -> bool:
        """Whether signs of life are missing, although too few to eject the replica."""
        return 3 * self.silence >= self._deadlines.silent

    def heard(self) -> None:
        """Note a sign of life."""
        self._silent = 0

    def event(self, event: v.Event) -> bool:
        """Note an event of the engine; return whether it ends the replica's time as half-open."""
        self._stalled = 0
        match event:
            case v.StepScheduled():
                self._tokens = sum(row.count for row in event.rows)
            case v.StepFinished() if event.t and self._tokens:
                self._steps.append(((event.t["end"] - event.t["start"]) / 1e6, self._tokens))
        if not (isinstance(event, v.StepFinished) and event.tokens):
            return False
        self._failures = 0
        returned, self.half_open = self.half_open, False
        return returned

    def failed(self) -> None:
        """Note that a hop of a request has failed here. What its ejection ends says nothing new."""
        if self.ejection is None:
            self._failures += 1

    def beat(self) -> None:
        """Count a beat of the gateway."""
        self._silent += 1
        self._stalled += 1
        self._well += 1

    def current(self, state: State | None) -> Fault | None:
        """Return what is wrong with the replica now, if anything is. `state` is its engine's."""
        if self.silence >= self._deadlines.silent:
            return Fault(f"no sign of life for {self.silence:.1f} s", "silent")
        if self._failures >= (1 if self.half_open else _FAILURES):
            return Fault(f"{self._failures} requests failed, and none got a token since", "error")
        stalled = self._stalled * self._deadlines.beat
        if stalled < self._deadlines.silent or state is None or state.paused or not state.running:
            return None
        if stalled >= _SLOWER * self._expected(_next_tokens(state)):
            return Fault(f"no step has ended for {stalled:.1f} s", "late")
        return None

    def _expected(self, tokens: int) -> float:
        """Return how many seconds a step with so many tokens may be expected to take at most.

        A step costs something beside its tokens, so a small one says little about a token's cost.
        """
        if not self._steps:
            return float("inf")
        longest = max(seconds for seconds, _ in self._steps)
        return longest + tokens * min(seconds / count for seconds, count in self._steps)

    def eject(self, fault: Fault) -> None:
        """Note that the replica is ejected now."""
        soon = self.half_open or self._well < _LAST_PAUSE
        self._pause = min(2 * self._pause, _LAST_PAUSE) if soon else _FIRST_PAUSE
        self.ejection, self.half_open = fault, False
        self._failures = self._well = 0

    def may_return(self, state: State | None) -> bool:
        """Whether an ejected replica has been well for long enough."""
        if self.current(state) is not None:
            self._well = 0
        return self._well >= self._pause

    def give_back(self) -> None:
        """Note that the replica has returned, half-open."""
        self.ejection, self.half_open = None, True
        self._failures = self._well = 0


def _next_tokens(state: State) -> int:
    """Return the largest number of tokens that the next step can compute."""
    requests = map(state.requests.__getitem__, [*state.running, *state.waiting])
    left = sum(len(request.tokens) - request.num_computed_tokens for request in requests)
    return min(max(left, 1), int(state.settings["token_budget"]))
